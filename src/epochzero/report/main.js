// Opens the report, draws it, and keeps a live one up to date.

const main = document.getElementById("report");
let shownContent = null;

const ENOUGH = 10; // networks, below which a correlation is no headline

function tiles(content) {
  const by = content.column.get(content.by);
  const first = content.best[0];
  const lacking = content.why.filter((number) => content.whys[number]).length;
  const told = Object.values({ ...(content.time.clock ?? content.time.scoring), ...content.time.around }).reduce((sum, one) => sum + one, 0);
  const measured = content.figures.filter((one) => one.paper !== null && one.low !== null);
  const truth = !hasScores(content) ? null : content.truths.find((row) => row.score === content.by) ?? content.truths[0];
  const found = [
    ["Networks", number(content.networks), content.evaluated !== content.networks && content.searched ? `${number(content.evaluated)} evaluations` : content.budget && content.state === "unfinished" ? `of ${number(content.budget)}` : ""],
    content.members.length ? ["Members", number(content.members.length), ""] : null,
    measured.length ? ["Figures", number(measured.length), `${measured.filter(agreed).length} of the paper's within our interval`] : null,
    by && first !== undefined && !content.members.length ? [content.searched ? "Best" : by.higher ? "Highest" : "Lowest", withUnit(by, by.values[first]), by.label] : null,
    content.front.length ? ["Front", number(content.front.length), "networks"] : null,
    truth && truth.value !== null && truth.n >= ENOUGH ? ["Spearman", truth.value.toFixed(3), `${truth.score}, ${truth.low.toFixed(3)} to ${truth.high.toFixed(3)}`] : null,
    told ? [content.time.clock ? "Time" : "Scoring", seconds(told), ""] : null,
    lacking ? ["Without a score", number(lacking), ""] : null,
  ];
  return el("dl", { class: "tiles" }, found.filter(Boolean).map(([name, item, hint]) => el("div", {}, el("dt", {}, name), el("dd", {}, item), hint ? el("dd", { class: "hint" }, hint) : "")));
}

function head(content) {
  const started = content.started ? ` · started ${content.started.replace("T", " ").replace("+00:00", " UTC")}` : "";
  return el("header", { class: "title" },
    el("p", { class: "kind" }, content.kind, " ", el("span", { class: `state ${content.state}` }, content.state)),
    el("h1", {}, content.title),
    el("p", { class: "quiet" }, `${content.store} · run ${content.run}${started}`),
    content.notes.length ? el("ul", { class: "notes", role: "note" }, content.notes.map((note) => el("li", {}, note))) : "",
    tiles(content));
}

function render(content = shownContent) {
  shownContent = content;
  const focused = document.activeElement?.id;
  const selection = focused === "filter" ? [document.activeElement.selectionStart, document.activeElement.selectionEnd] : null;
  const open = new Set([...main.querySelectorAll("details[open]")].map((one) => one.querySelector("summary").textContent.replace(/\d[\d,]*/g, "")));
  const scrolled = [scrollX, scrollY];
  tip.hide();
  const table = new CandidateTable(content);
  const pick = (i) => table.show(i);
  const found = foundSection(content), result = resultSection(content);
  const parts = [...(content.members.length ? [found, result] : [result, found]), progressSection(content, pick), costSection(content, pick), truthSection(content, pick), agreementSection(content), layersSection(content), timeSection(content), tableSection(content, table), manifestSection(content)].filter(Boolean);
  const links = el("nav", { class: "contents", "aria-label": "Sections" }, parts.map((part) => el("a", { href: `#${part.id}`, id: `to-${part.id}` }, part.querySelector("h2").textContent)));
  main.replaceChildren(head(content), links, ...parts, el("footer", { class: "quiet" }, `Made by EpochZero ${content.version}. This file asks for nothing and sends nothing.`));
  main.querySelectorAll("details").forEach((one) => { one.open = open.has(one.querySelector("summary").textContent.replace(/\d[\d,]*/g, "")); });
  document.title = `${content.title} · EpochZero`;
  table.box.scrollTop = kept.top;
  scrollTo(...scrolled);
  if (focused) {
    const again = document.getElementById(focused);
    again?.focus({ preventScroll: true });
    if (selection) again?.setSelectionRange(...selection);
  }
  main.dataset.ready = content.networks;
}

// ---- light and dark

const theme = {
  button: document.getElementById("theme"),
  set(name) {
    document.documentElement.dataset.theme = name;
    this.button.textContent = name === "dark" ? "Light" : "Dark";
    this.button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    if (shownContent) render();
  },
};
const dark = matchMedia("(prefers-color-scheme: dark)");
theme.set(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => theme.set(dark.matches ? "dark" : "light"));
theme.button.addEventListener("click", () => theme.set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

// ---- a live report asks its server again and again

const PAUSE = 2000;
const live = document.getElementById("live");

// The state is said aloud where it changes; its age, which always does, is not.
function tell(state, on = false, age = "") {
  if (live.textContent !== state) live.textContent = state;
  live.className = on ? "on" : "";
  document.getElementById("age").textContent = age;
}

async function follow() {
  let tag = "";
  for (;;) {
    const begun = performance.now();
    try {
      const answer = await fetch("data", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        render(await unpacked(new Uint8Array(await answer.arrayBuffer())));
      } else if (answer.status !== 304) {
        failed(await answer.text());
      }
      if (answer.ok || answer.status === 304) {
        const quiet = Math.max(0, Math.round((Date.now() - Date.parse(answer.headers.get("Last-Modified"))) / 1000));
        const finished = shownContent?.state === "finished";
        tell(finished ? "Finished" : "Live", quiet < 10 && !finished, !finished && shownContent?.networks ? `last score ${quiet < 120 ? `${quiet} s` : seconds(quiet)} ago` : "");
      }
    } catch {
      tell("The report's server is gone; this is what it said last.");
    }
    await new Promise((go) => setTimeout(go, Math.max(PAUSE, 4 * (performance.now() - begun))));
  }
}

function failed(sentence) {
  if (main.dataset.ready) { tell(sentence); return; }
  main.replaceChildren(el("p", { class: "waiting" }, sentence));
}

const data = document.getElementById("data").textContent;
if (data) unpacked(fromBase64(data)).then(render).catch((error) => failed(`This report cannot be opened: ${error.message}`));
else follow();
