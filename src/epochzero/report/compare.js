// Two networks side by side, and several runs side by side.

function differenceSection(content) {
  if (content.networks < 2 || !content.best.length || content.members.length) return null;
  const named = [...new Set([...content.drawings, ...content.hovered].map((one) => one.network).concat(content.best, chosen.other ?? []))].slice(0, 80);
  if (named.length < 2) return null;
  const one = named.includes(chosen.one) ? chosen.one : named[0];
  const other = named.includes(chosen.other) && chosen.other !== one ? chosen.other : named.find((i) => i !== one);
  const by = content.column.get(content.by);
  const title = (i) => `${by && !Number.isNaN(by.values[i]) ? `${number(by.values[i])} · ` : ""}#${content.step[i] + 1} · ${content.archs[i].length > 70 ? `${content.archs[i].slice(0, 67)}…` : content.archs[i]}`;
  const select = (id, label, value) => choice(id, label, named.map((i) => [String(i), title(i)]), String(value), (text) => { chosen[id] = Number(text); render(); });
  const image = drawingOf(content);
  const card = (i, label) => el("div", { class: "card network" }, el("div", { class: "figure-head" }, el("h3", {}, label), el("span", { class: "value" }, by ? `${by.label} ${withUnit(by, by.values[i])}` : "")),
    el("p", { class: "arch-text" }, content.archs[i]), image(i) ? scrolling(el("div", { class: "drawing", tabindex: 0, role: "group", "aria-label": `Drawing of network ${label}` }, image(i))) : el("p", { class: "hint" }, "Not drawn: the report holds drawings of the front, the best networks and the first ones."));
  const drawn = content.kind !== "rank" || content.drawings.some((one) => one.svg); // modules have neither drawings nor choices
  const [a, b] = [one, other].map((i) => (drawn ? readChoices(content.archs[i]) : []));
  const changed = Array.from({ length: Math.max(a.length, b.length) }, (_, k) => [a[k] ?? b[k], a[k], b[k]]).filter(([, left, right]) => left?.[1] !== right?.[1] || left?.[0] !== right?.[0]);
  const same = Math.max(a.length, b.length) - changed.length;
  const row = (name, left, right, change) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "cell" }, left), el("td", { class: "cell" }, right), el("td", { class: "number" }, change));
  const values = content.columns.filter((column) => !Number.isNaN(column.values[one]) && !Number.isNaN(column.values[other]))
    .map((column) => row(column.label, withUnit(column, column.values[one]), withUnit(column, column.values[other]), relative(column.values[one], column.values[other])));
  return section("difference", "Two networks compared", "", el("div", { class: "selects" }, select("one", "A", one), select("other", "B", other)),
    drawn ? el("div", { class: "networks" }, card(one, "A"), card(other, "B")) : "",
    el("div", { class: "card" }, scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences" }, el("table", { class: "plain named", "data-changed": changed.length },
      el("caption", { class: "unseen" }, "Choices and values that differ"), el("thead", {}, el("tr", {}, ["", ...(drawn ? ["A", "B"] : [content.archs[one], content.archs[other]]), "B - A"].map((head, k) => el("th", { scope: "col", class: k === 3 ? "number" : "" }, head)))),
      el("tbody", {}, changed.map(([[name], left, right]) => row(name, left ? readable(left[1]) : "–", right ? readable(right[1]) : "–", "")), values)))),
      !drawn ? "" : el("p", { class: "hint" }, changed.length ? `${plural(changed.length, "choice")} differ${changed.length === 1 ? "s" : ""}, ${same} ${same === 1 ? "is" : "are"} the same.` : "Their choices are the same.")));
}

function relative(a, b) {
  const share = a ? (100 * (b - a)) / Math.abs(a) : NaN;
  return Number.isFinite(share) ? `${share > 0 ? "+" : ""}${share.toFixed(Math.abs(share) < 10 ? 1 : 0)} %` : "–";
}

// ---- several runs

const COLOURS = ["accent", "winner", "good", "violet", "against", "quiet"];
const DASHES = ["", "7 4", "2 3"];

function comparisonSection(content) {
  const { compared } = content;
  if (compared.length < 2) return null;
  const [first] = compared;
  const drawn = compared.filter((run) => run.by === first.by && run.steps.length);
  const heads = ["Run", "Method", "Seed", "Evaluations", `Best ${first.label}`, "Found at", "Parameters", "FLOPs", "Seconds", "Network"];
  const rows = compared.map((run) => [run.name, run.method ?? "–", run.seed ?? "–", number(run.evaluated), run.by === first.by ? number(run.value) : `${number(run.value)} (${run.label})`, number(run.met), short_(run.params), short_(run.flops), run.seconds === null ? "–" : run.seconds.toPrecision(3), run.arch]);
  const table = sortable("compared", el("table", { class: "plain sticky", "data-runs": compared.length }, el("caption", { class: "unseen" }, "Runs side by side"),
    el("thead", {}, el("tr", {}, heads.map((head, k) => el("th", { scope: "col", class: k > 2 && k < 9 ? "number" : "" }, head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, k) => (k ? el("td", { class: k > 2 && k < 9 ? "number" : k === 9 ? "arch-cell" : "" }, cell) : el("th", { scope: "row" }, cell))))))));
  const caption = `Best so far by ${first.label}, ${toward(first)}.${seedsOf(drawn)}`;
  return section("compared", "The runs side by side", "",
    drawn.length > 1 ? el("figure", { class: "card", id: "figure-compared" }, el("div", { class: "figure-head" }, el("h3", {}, "Best so far"),
      csvButton("compared", "best so far of all runs", () => [["run", "evaluation", first.by], ...drawn.flatMap((run) => run.steps.map((step, k) => [run.name, step, run.values[k]]))])),
      scrolling(el("div", { class: "scroll" }, curves(drawn, first.label))), legend(drawn), el("figcaption", {}, caption)) : "",
    el("div", { class: "card" }, scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" }, table))));
}

const short_ = (value) => (value === null ? "–" : short(value));

// Runs that differ by their seed alone: the mean and the range of their best.
function seedsOf(runs) {
  const groups = Map.groupBy ? Map.groupBy(runs, (run) => run.group) : runs.reduce((all, run) => all.set(run.group, [...(all.get(run.group) ?? []), run]), new Map());
  return [...groups.values()].filter((group) => group.length > 1).map((group) => {
    const best = group.map((run) => run.value), mean = best.reduce((a, b) => a + b, 0) / best.length;
    return ` ${group[0].method ?? "Run"} with ${group.length} seeds: mean ${number(mean)}, from ${number(Math.min(...best))} to ${number(Math.max(...best))}.`;
  }).join("");
}

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

const dash = (k) => DASHES[Math.floor(k / COLOURS.length) % DASHES.length];

function curves(runs, label) {
  const width = 900, height = 340, left = 70, right = 16, top = 12, bottom = 44;
  const most = Math.max(...runs.map((run) => run.evaluated));
  const all = runs.flatMap((run) => run.values);
  const values = Float64Array.from(all), places = all.map((_, k) => k);
  const y = new Axis({ values, log: false }, places, height - bottom, top, 1);
  const x = (step) => left + ((width - left - right) * step) / most;
  const text = (x_, y_, words, more = {}) => svg("text", { x: x_, y: y_, ...more }, words);
  const grid = y.ticks(5).flatMap((value) => [svg("line", { x1: left, x2: width - right, y1: y.at(value), y2: y.at(value), class: "grid" }), text(left - 8, y.at(value) + 4, short(value), { "text-anchor": "end" })]);
  const below = ticks(0, most, 7).flatMap((value) => text(x(value), height - bottom + 18, short(value), { "text-anchor": "middle" }));
  const lines = runs.map((run, k) => {
    const path = run.steps.map((step, j) => (j ? `H${x(step).toFixed(1)}V${y.at(run.values[j]).toFixed(1)}` : `M${x(step).toFixed(1)} ${y.at(run.values[j]).toFixed(1)}`)).join("");
    return svg("path", { d: `${path}H${x(run.evaluated).toFixed(1)}`, class: `curve c-${COLOURS[k % COLOURS.length]}`, "stroke-dasharray": dash(k) }, svg("title", {}, `${run.name}: ${number(run.value)}`));
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curves", role: "img", "aria-label": `Best ${label} so far against evaluations, a line for each of ${runs.length} runs.` },
    ...grid, ...below, text((left + width - right) / 2, height - 6, "evaluations", { "text-anchor": "middle", class: "label" }), ...lines);
}

const legend = (runs) => el("ul", { class: "legend" }, runs.map((run, k) => el("li", {}, svg("svg", { viewBox: "0 0 28 10", width: 28, height: 10, class: "curves", "aria-hidden": "true" }, svg("path", { d: "M1 5H27", class: `curve c-${COLOURS[k % COLOURS.length]}`, "stroke-dasharray": dash(k) })), [run.name, run.method, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(" · "))));
