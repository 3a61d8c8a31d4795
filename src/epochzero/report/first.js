// The first screen: what won, drawn, beside what was found, how far to trust it, and what a cheaper one would lose.

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard for this page: by way of a selection
    const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  say("Copied.");
  setTimeout(() => { button.textContent = before; }, 1500);
}

const copyButton = (id, label, text) => (text ? el("button", { type: "button", class: "button small", id: `copy-${id}`, click: (event) => copy(text, event.currentTarget) }, label) : "");

function copyButtons(content, i) {
  return el("div", { class: "copies", role: "group", "aria-label": "Copy" }, el("span", { class: "quiet" }, "Copy"),
    copyButton("arch", "Architecture", content.archs[i]), copyButton("code", "Code", content.code), copyButton("train", "Train command", content.train));
}

// The first sentences of a statement, and the rest on demand.
const SOON = 300; // characters
function sentences(text) {
  const parts = text.split(/(?<=[.)\]]) (?=[A-Z])/);
  let shown = parts.shift();
  while (parts.length && shown.length + parts[0].length < SOON) shown += ` ${parts.shift()}`;
  return [shown, parts.join(" ")];
}

function statementCards(content, pick) {
  return el("div", { class: "statements" }, content.statements.map(({ title, text, network }) => {
    const [shown, more] = sentences(text);
    return el("article", { class: "card statement", id: `statement-${title.toLowerCase().replaceAll(" ", "-")}` }, el("h2", {}, title), el("p", {}, shown),
      more ? el("details", {}, el("summary", {}, "More"), el("p", {}, more)) : "",
      network === null ? "" : el("button", { type: "button", class: "button small", click: () => { chosen.other = network; render(); document.getElementById("difference")?.scrollIntoView(); } }, "Compare it with the first"));
  }));
}

// The ranking of a few networks, with the spread of each over its draws.
function rankingFigure(content) {
  const { draws } = content;
  const by = content.column.get(content.by);
  const flops = content.column.get("flops");
  const order = known(by).sort((a, b) => (by.higher ? 1 : -1) * (by.values[b] - by.values[a]));
  const ends = order.flatMap((i) => [by.values[i] - draws.spreads[i], by.values[i] + draws.spreads[i]]);
  const low = Math.min(...ends), high = Math.max(...ends);
  const at = (value) => 4 + (92 * (value - low)) / (high - low || 1);
  const heads = ["Network", "Mean", `± over ${draws.count} draws`, "Group", ...(flops ? ["FLOPs"] : [])];
  return el("figure", { class: "card", id: "figure-ranking" }, el("div", { class: "figure-head" }, el("h3", {}, `Ranked by ${by.label}`)),
    scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranking" }, sortable("ranking", el("table", { class: "forest", "data-rows": order.length },
      el("thead", {}, el("tr", {}, heads.map((head, k) => el("th", { scope: "col", class: k === 2 ? "wide" : k ? "number" : "" }, head)))),
      el("tbody", {}, order.map((i) => el("tr", {}, el("th", { scope: "row", title: content.archs[i] }, content.archs[i]), el("td", { class: "number" }, number(by.values[i])),
        el("td", { class: "wide" }, intervalBar({ value: by.values[i], low: by.values[i] - draws.spreads[i], high: by.values[i] + draws.spreads[i], paper: null }, at, false), el("span", { class: "quiet" }, `± ${draws.spreads[i].toPrecision(2)}`)),
        el("td", { class: "number" }, String(draws.groups[i] ?? "–")), flops ? el("td", { class: "number" }, short(flops.values[i])) : ""))))))),
    el("figcaption", {}, `Dots: the mean over ${draws.count} draws of weights and data; bars: one standard deviation. Networks of a group do not differ significantly from its first (Tukey's test at 5 %${draws.least === null ? "" : `, least difference ${draws.least.toPrecision(2)}`}).`));
}

function frontFigure(content, pick) {
  const [first, second] = content.curves.map((name) => content.column.get(name));
  const places = both(second.values, first.values);
  const line = content.front.slice().sort((a, b) => second.values[a] - second.values[b]);
  const caption = `${plural(places.length, "network")}; the ${plural(line.length, "network")} of the front are on the line${content.curves.length > 2 ? ", which has further goals" : ""}. Rings: best, knee and cheap end.`;
  const chart = new Chart({ x: axis(second), y: axis(first), places, line, marked: content.drawings.map((one) => one.network), tell: teller(content), draw: drawingOf(content), pick }, `${first.label} against ${second.label}. ${caption}`);
  return figure("front", `${first.label} against ${second.label}`, chart, caption, pairs(content, [second, first]));
}

function firstScreen(content, pick) {
  const hero = content.draws ? rankingFigure(content)
    : content.front.length && content.curves.length > 1 ? frontFigure(content, pick)
    : content.searched && content.drawings.length && content.best.length && !content.members.length ? networkCard(content, content.drawings[0], 0)
    : null;
  if (!content.statements.length) return hero ? el("div", { class: "first-screen alone" }, hero) : "";
  return el("div", { class: `first-screen${hero ? "" : " alone"}` }, hero ?? "", statementCards(content, pick));
}

// Progress, rate and time left of a run under way, from what the page has seen of it.
const seen = []; // [milliseconds, evaluations]

function progressBar(content) {
  if (!isLive || content.state === "finished" || !content.budget) return "";
  const now = performance.now(), done = Math.min(content.evaluated, content.budget);
  if (!seen.length || seen.at(-1)[1] !== done) seen.push([now, done]);
  while (seen.length > 3 && now - seen[0][0] > 120000) seen.shift();
  const [at, was] = seen.length > 2 ? seen[1] : content.resumed.length ? [now, done] : [now - (Date.parse(content.made) - Date.parse(content.started)), 0];
  const rate = now > at ? (1000 * (done - was)) / (now - at) : 0; // from the first change that the page saw, or from the start
  const pace = rate > 0 ? ` · ${rate.toPrecision(2)} a second · ${seconds((content.budget - done) / rate)} left` : "";
  const bar = el("i");
  bar.style.width = `${((100 * done) / content.budget).toFixed(1)}%`;
  return el("div", { class: "run-progress" }, el("span", { class: "bar", role: "progressbar", "aria-label": "Evaluations", "aria-valuemin": 0, "aria-valuemax": content.budget, "aria-valuenow": done }, bar),
    el("span", { id: "pace" }, `${number(done)} of ${number(content.budget)} evaluations${pace}`));
}
