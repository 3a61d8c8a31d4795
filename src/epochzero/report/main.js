// Opens the report, draws it, and keeps a live one up to date.

const main = document.getElementById("report");
let shownContent = null;
const data = document.getElementById("data").textContent;
const isLive = !data; // which asks its server again and again
addEventListener("pointerdown", (event) => { if (!event.target.closest(".chart")) tip.hide(); });
for (const scrolls of ["wheel", "touchmove"]) addEventListener(scrolls, () => tip.hide(), { passive: true });

function tiles(content) {
  const told = Object.values({ ...(content.time.clock ?? content.time.scoring), ...content.time.around }).reduce((sum, one) => sum + one, 0);
  const again = content.evaluated !== content.networks && content.searched ? ` in ${plural(content.evaluated, "evaluation")}` : content.budget && content.state === "unfinished" ? ` of ${number(content.budget)}` : "";
  const found = [
    content.networks ? `${plural(content.networks, "network")}${again}` : "",
    content.front.length ? `${number(content.front.length)} on the front` : "",
    content.method ? `${content.method}` : "",
    told ? seconds(told) : "",
    content.lacking ? `${number(content.lacking)} without a score` : "",
  ];
  return found.filter(Boolean).join(" · ");
}

// What people call the state of a run; a live page knows when its last score came.
const QUIET = 120; // seconds
let quiet = 0;
const stateText = (content) => (content.state === "finished" ? "finished" : isLive && quiet < QUIET ? "running" : "not finished");

function head(content, pick) {
  const started = content.started ? ` · started ${content.started.replace("T", " ").replace("+00:00", " UTC")}` : "";
  return el("header", { class: "title" },
    el("p", { class: "kind" }, content.kind, " ", el("span", { class: `state ${content.state}` }, stateText(content))),
    el("h1", {}, content.title),
    el("p", { class: "quiet" }, tiles(content)),
    progressBar(content),
    firstScreen(content, pick),
    content.statements.length || !content.notes.length ? "" : notesOf(content),
    el("p", { class: "quiet origin" }, `${content.store} · run ${content.run}${started}`));
}

const notesOf = (content) => el("ul", { class: "notes", role: "note" }, content.notes.map((note) => el("li", {}, note)));

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
  const parts = [...(content.members.length ? [found, result] : [result, found]), costSection(content, pick), progressSection(content, pick),
    comparisonSection(content), choicesSection(content, table), differenceSection(content), truthSection(content, pick), agreementSection(content),
    layersSection(content), timeSection(content), tableSection(content, table), manifestSection(content)].filter(Boolean);
  contents(parts);
  main.replaceChildren(head(content, pick), ...parts,
    el("footer", { class: "quiet" }, content.statements.length && content.notes.length ? [el("h2", {}, "Notes"), notesOf(content)] : "",
      `Made by EpochZero ${content.version}. This file loads nothing and sends nothing.`));
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

// Links to the sections; the one in sight is marked.
const near = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  document.getElementById(`to-${target.id}`)?.toggleAttribute("aria-current", isIntersecting);
}), { rootMargin: "-30% 0px -65% 0px" });

function contents(parts) {
  near.disconnect();
  document.getElementById("contents").replaceChildren(...parts.map((part) => el("a", { href: `#${part.id}`, id: `to-${part.id}` }, SHORT[part.id] ?? part.id)));
  parts.forEach((part) => near.observe(part));
}

const SHORT = {
  found: "Networks", result: "Figures", cost: "Cost", progress: "Progress", compared: "Runs", choices: "Choices", difference: "Compare", truth: "Truth",
  agreement: "Agreement", layers: "Layers", time: "Time", networks: "Table", made: "Made",
};

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
        quiet = Math.max(0, Math.round((Date.now() - Date.parse(answer.headers.get("Last-Modified"))) / 1000));
        const chip = main.querySelector(".state");
        if (chip && shownContent) chip.textContent = stateText(shownContent);
        const finished = shownContent?.state === "finished";
        tell(finished ? "" : "Live", quiet < 10 && !finished, !finished && shownContent?.networks ? `last score ${quiet < 120 ? `${quiet} s` : seconds(quiet)} ago` : "");
      }
    } catch {
      tell("The report's server has stopped; this is its last answer.");
    }
    await new Promise((go) => setTimeout(go, Math.max(PAUSE, 4 * (performance.now() - begun))));
  }
}

function failed(sentence) {
  if (main.dataset.ready) { tell(sentence); return; }
  main.replaceChildren(el("p", { class: "waiting" }, sentence));
}

if (data) unpacked(fromBase64(data)).then(render).catch((error) => failed(`This report cannot be opened: ${error.message}`));
else follow();
