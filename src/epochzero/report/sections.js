// The sections of a report. Each one takes the content and gives a section, or nothing where its data are not there.

const chosen = {}; // what was chosen in the lists, kept while a live report grows

function section(id, title, about, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), about ? el("p", { class: "about" }, about) : "", children);
}

function figure(name, title, chart, caption, rows) {
  return el("figure", { class: "card", id: `figure-${name}` },
    el("div", { class: "figure-head" }, el("h3", {}, title), chart.zoomButtons(), csvButton(name, title, rows)),
    chart.node, el("figcaption", {}, caption));
}

const axis = (column, more = {}) => ({ values: column.values, label: `${column.label}${column.unit ? `, ${column.unit}` : ""}`, ...more });
const toward = (column) => (column.higher ? "higher is better" : "lower is better");

function teller(content) {
  const shown = content.columns.slice(0, 9);
  return (i) => [["", content.archs[i]], ["evaluation", number(content.step[i] + 1)],
    ...shown.filter((column) => !Number.isNaN(column.values[i])).map((column) => [column.label, measured(column, i)])];
}

// Drawings by network, of those that the report holds.
function drawingOf(content) {
  content.drawn ??= new Map([...content.hovered, ...content.drawings].map(({ network, svg }) => [network, svg]));
  return (i) => (content.drawn.get(i) ? drawing(content.drawn.get(i)) : null);
}

const pairs = (content, columns) => () => [["network", ...columns.map((column) => column.name)],
  ...content.archs.map((arch, i) => [arch, ...columns.map((column) => column.values[i])]).filter((row) => row.slice(1).some((v) => !Number.isNaN(v)))];

// ---- what was found

const BROAD = 1000; // pixels, beyond which a drawing cannot be read in half a line

// Sizes and accuracies; the other scores are in the table of all networks.
function facts(content, i, except = "") {
  const shown = content.columns.filter((column) => column.name !== except && !Number.isNaN(column.values[i]));
  const kinds = shown.some((column) => column.kind !== "score") ? ["cost", "truth"] : ["score"];
  const size = (column) => (column.kind === "cost" && !column.unit ? short(column.values[i]) : measured(column, i));
  return el("dl", { class: "facts" }, shown.filter((column) => kinds.includes(column.kind)).slice(0, 12)
    .map((column) => el("div", { class: column.kind, title: number(column.values[i]) }, el("dt", {}, column.label), el("dd", {}, size(column)))));
}

function networkCard(content, one, place) {
  const i = one.network;
  const by = content.column.get(content.by);
  const image = one.svg ? drawing(one.svg) : null;
  const ranked = content.best.length > 0;
  const name = content.members.includes(i) ? `Member ${place + 1}` : one.role ? one.role[0].toUpperCase() + one.role.slice(1) : !ranked ? `Network ${place + 1}` : place ? `Place ${place + 1}` : content.searched ? "Winner" : "First";
  const broad = image && image.viewBox.baseVal.width > BROAD ? " broad" : "";
  return el("article", { class: `card network${place || !ranked || content.members.length ? "" : " first"}${broad}` },
    el("div", { class: "figure-head" }, el("h3", {}, name), el("span", { class: "value" }, by ? `${by.label} ${withUnit(by, by.values[i])}` : "")),
    el("p", { class: "arch-text" }, content.archs[i]),
    image ? scrolling(el("div", { class: "drawing", tabindex: 0, role: "group", "aria-label": `Drawing of the cell of ${name}` }, image)) : "",
    facts(content, i, content.by),
    one.role ? el("div", { class: "copies" }, copyButton(`arch-${place}`, "Copy architecture", content.archs[i])) : place || !ranked || content.members.length ? "" : copyButtons(content, i),
    place ? "" : winnerScores(content, i));
}

// A box that says so where there is more to see at its side.
function scrolling(box) {
  const outer = el("div", { class: "scrolling" }, box, el("p", { class: "hint sideways" }, "Wider than the page: scroll it sideways →"));
  new ResizeObserver(() => outer.classList.toggle("cut", box.scrollWidth > box.clientWidth + 1)).observe(box);
  return outer;
}

function winnerScores(content, i) {
  const here = content.winner_scores.filter((score) => score.arch === content.archs[i] && !content.column.has(score.name) && score.value !== null);
  if (!here.length) return "";
  return el("details", {}, el("summary", {}, `What ${plural(here.length, "other proxy").replace("proxys", "proxies")} say of it`),
    el("dl", { class: "facts" }, here.map((score) => el("div", {}, el("dt", {}, score.name), el("dd", {}, number(score.value))))));
}

function foundSection(content) {
  if (!content.drawings.length || content.draws || (content.kind === "bench" && !content.best.length)) return null;
  const first = content.searched && content.best.length && !content.members.length && !content.front.length ? 1 : 0; // which the first screen shows
  if (content.drawings.length === first) return null;
  const by = content.column.get(content.by);
  const ordered = by ? `Ordered by ${by.label}, ${toward(by)}.` : "";
  const order = content.members.length ? "Members in the order in which they were chosen; the ensemble averages their predictions."
    : content.searched ? ordered
    : by ? `${ordered} They are the best of those that were measured: this run measured networks, and searched for none.`
    : "The first networks that it evaluated. This run is not a search, and does not rank its networks.";
  const about = `${order} Dashed lines carry nothing.`;
  const title = content.members.length ? `The ensemble of ${content.members.length}` : content.front.length ? "The front: best, knee and cheap end" : content.searched ? "Runners-up" : by ? "The best by the table" : "Some of its networks";
  return section("found", title, about,
    el("div", { class: "networks" }, content.drawings.map((one, place) => networkCard(content, one, place)).slice(first, content.kind === "bench" ? 3 : undefined)));
}

// ---- how the search went

function progressSection(content, pick) {
  const names = content.curves.filter((name) => content.column.has(name));
  if (!names.length || content.networks < 2 || content.draws) return null;
  const name = names.includes(chosen.curve) ? chosen.curve : names[0];
  const column = content.column.get(name);
  const places = known(column);
  if (!places.length) return null;
  const step = { values: content.step.map((value) => value + 1), label: "evaluations" };
  const line = improvements(places, column);
  const last = line.at(-1);
  const caption = `Best so far of ${plural(places.length, "network")} with a score, by ${column.label}: ${withUnit(column, column.values[last])}, found at evaluation ${number(step.values[last])} of ${number(content.evaluated)}; it improved ${plural(line.length - 1, "time")} after the first. Dots are single networks, ${toward(column)}.`;
  const chart = new Chart({ x: step, y: axis(column), places, line, steps: true, tell: teller(content), draw: drawingOf(content), pick }, `Best ${column.label} so far against evaluations. ${caption}`);
  const select = names.length > 1 ? choice("curve", "Goal", names.map((one) => [one, content.column.get(one).label]), name, (value) => { chosen.curve = value; render(); }) : "";
  return section("progress", "How the search went", "", select,
    figure("progress", "Best so far", chart, caption, () => bestSoFar(content, places, column)));
}

function bestSoFar(content, places, column) {
  let best = NaN;
  const rows = places.map((i) => {
    const value = column.values[i];
    if (!(column.higher ? value <= best : value >= best)) best = value;
    return [content.step[i] + 1, content.archs[i], value, best];
  });
  return [["evaluation", "network", column.name, "best_so_far"], ...rows];
}

// ---- score against cost

function costSection(content, pick) {
  const costs = content.columns.filter((column) => column.kind === "cost" && known(column).length > 1);
  const scores = content.columns.filter((column) => column.kind !== "cost");
  if (!costs.length || !scores.length) return null;
  const y = content.column.get(chosen.cost) ?? scores.find((column) => column.name === content.by) ?? scores[0];
  const figures = costs.map((x) => {
    const places = both(x.values, y.values);
    if (!places.length) return "";
    const line = paretoFront(places, x.values, false, y.values, y.higher);
    const several = content.front.length ? ` Rings: the ${plural(content.front.length, "network")} that no other beats in all goals of the search.` : content.members.length ? " Rings: the members." : content.best.length ? " Ring: the first network." : "";
    const caption = `${plural(places.length, "network")}, ${line.length} of them on the line: better than every network with ${x.name === "latency" ? "a lower" : "fewer"} ${x.label}.${several}`;
    const marked = content.front.length ? content.front : content.members.length ? content.members : content.best.slice(0, 1);
    const chart = new Chart({ x: axis(x), y: axis(y), places, line, marked, tell: teller(content), draw: drawingOf(content), pick }, `${y.label} against ${x.label}. ${caption}`);
    return figure(`cost-${x.name}`, `${y.label} against ${x.label}`, chart, caption, pairs(content, [x, y]));
  });
  const select = scores.length > 1 ? choice("cost", "Score", scores.map((one) => [one.name, one.label]), y.name, (value) => { chosen.cost = value; render(); }) : "";
  return section("cost", "What a better score costs", ` Parameters and FLOPs (multiply-accumulates) are counted for ${content.fits}.`, select, el("div", { class: "figures" }, figures));
}

// ---- score against truth

function forest(rows, picked, choose) {
  const at = (value) => `${(50 + 50 * value).toFixed(2)}%`;
  return sortable("forest", el("table", { class: "forest" },
    el("caption", { class: "unseen" }, "Spearman's rho of each score with the truth, with its 95 % interval"),
    el("thead", {}, el("tr", {}, ["Score", "Spearman", "95 % interval", "Networks"].map((head, k) => el("th", { scope: "col", class: k === 2 ? "wide" : k ? "number" : "" }, head)))),
    el("tbody", {}, rows.map((row) => {
      const bar = el("span", { class: "interval" });
      if (row.value !== null) {
        const range = el("i"), dot = el("b");
        range.style.left = at(row.low);
        range.style.width = `${(50 * (row.high - row.low)).toFixed(2)}%`;
        dot.style.left = at(row.value);
        bar.append(range, dot);
      }
      const said = row.value === null ? `none: ${row.why}` : `${row.low.toFixed(3)} to ${row.high.toFixed(3)}`;
      return el("tr", { class: row.score === picked ? "picked" : "" },
        el("th", { scope: "row" }, el("button", { type: "button", id: `forest-${row.score}`, "aria-pressed": String(row.score === picked), click: () => choose(row.score) }, row.score)),
        el("td", { class: "number" }, row.value === null ? "–" : row.value.toFixed(3)),
        el("td", { class: "wide" }, bar, el("span", { class: "quiet" }, said)), el("td", { class: "number" }, number(row.n)));
    }))));
}

// Whether there are scores to hold against anything; a benchmark may be of costs alone.
const hasScores = (content) => content.kind === "bench" || content.columns.some((column) => column.kind === "score");
const FEWEST = 3; // networks, below which their order says nothing

function truthSection(content, pick) {
  const names = [...new Set(content.truths.map((row) => row.truth))].filter((name) => known(content.column.get(name)).length >= FEWEST);
  if (!names.length || !hasScores(content)) return null;
  const truth = content.column.get(names.includes(chosen.truth) ? chosen.truth : names[0]);
  const rows = content.truths.filter((row) => row.truth === truth.name);
  if (!rows.length) return null;
  const row = rows.find((one) => one.score === chosen.score) ?? rows.find((one) => one.score === content.by) ?? rows[0];
  const x = content.column.get(row.score);
  const places = both(x.values, truth.values);
  const rho = row.value === null ? `No correlation: ${row.why}.` : `Spearman ${row.value.toFixed(3)}, 95 % interval ${row.low.toFixed(3)} to ${row.high.toFixed(3)} (${number(row.resamples)} bootstrap resamples${row.repeats > 1 ? `, ${row.repeats} repeats; the first is drawn` : ""}).`;
  const caption = `${plural(places.length, "network")}. ${rho}`;
  const chart = new Chart({ x: axis(x), y: axis(truth), places, marked: content.best.slice(0, 1), tell: teller(content), draw: drawingOf(content), pick }, `${truth.label} against ${x.label}. ${caption}`);
  const select = names.length > 1 ? choice("truth", "Truth", names.map((one) => [one, content.column.get(one).label]), truth.name, (value) => { chosen.truth = value; render(); }) : "";
  const searched = content.searched ? " The networks are those that the search evaluated, not a random sample of the space: the correlation on the whole space may differ." : "";
  return section("truth", "Do the scores predict the truth?", `How well scores order the networks by ${truth.label}. Scores are turned so that higher is better.${searched}`, select,
    el("div", { class: "figures" },
      figure("truth", `${truth.label} against ${x.label}`, chart, caption, pairs(content, [x, truth])),
      el("div", { class: "card" }, el("div", { class: "figure-head" }, el("h3", {}, `Agreement with ${truth.label}`),
        csvButton("spearman", "the correlations", () => [["score", "truth", "spearman", "low", "high", "networks"], ...content.truths.map((r) => [r.score, r.truth, r.value ?? NaN, r.low ?? NaN, r.high ?? NaN, r.n])])),
      scrolling(el("div", { class: "scroll" }, forest(rows, row.score, (name) => { chosen.score = name; render(); }))))));
}

// ---- agreement between scores

function agreementSection(content) {
  const { agreement } = content;
  if (!agreement || !hasScores(content)) return null;
  const labels = agreement.names.map((name) => content.column.get(name).label);
  const cell = (value, r, c) => {
    const made = el("td", { class: value < 0 ? "against" : "with", title: `${labels[r]} and ${labels[c]}: ${value === null ? "none" : value.toFixed(3)}, ${plural(agreement.networks[r][c], "network")}` }, value === null ? "–" : value.toFixed(2).replace("-0.00", "0.00"));
    made.style.setProperty("--strength", `${Math.round(Math.abs(value ?? 0) * 62)}%`);
    return made;
  };
  return section("agreement", "Do the scores agree?", "Spearman's rank correlation of each pair of columns over the networks that have both. Scores are turned so that higher is better; parameters, FLOPs and latency are as they are.",
    el("div", { class: "card" }, el("div", { class: "figure-head" }, el("h3", {}, "Rank agreement"),
      csvButton("agreement", "rank agreement", () => [["", ...agreement.names], ...agreement.names.map((name, r) => [name, ...agreement.values[r].map((v) => v ?? NaN)])])),
    scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rank agreement" }, el("table", { class: "heat", "data-cells": labels.length ** 2 },
      el("caption", { class: "unseen" }, "Spearman's rank correlation of each pair of columns"),
      el("thead", {}, el("tr", {}, el("td"), labels.map((label) => el("th", { scope: "col" }, el("span", {}, label))))),
      el("tbody", {}, labels.map((label, r) => el("tr", {}, el("th", { scope: "row" }, label), agreement.values[r].map((value, c) => cell(value, r, c))))))))));
}
