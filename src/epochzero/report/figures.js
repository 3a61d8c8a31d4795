// What a run measured: ours with its interval beside the paper's figure, as a table with a chart in each row.

const RANK = ["pearson", "spearman", "kendall"]; // between -1 and 1, with a line at 0
const agreed = (one) => one.paper !== null && one.low !== null && one.low <= one.paper && one.paper <= one.high;
const away = (one) => (one.value === null || one.paper === null ? null : one.value - one.paper);
const signed = (value) => (value === null ? "–" : `${value > 0 ? "+" : ""}${rounded(value)}`);
const rounded = (value) => (value === null ? "–" : Math.abs(value) < 10 ? value.toFixed(3) : number(value));

// From a value to its place in percent.
function scaleOf(figures) {
  if (figures.every((one) => RANK.includes(one.statistic))) return (value) => 50 + 50 * value;
  const all = figures.flatMap((one) => [one.value, one.low, one.high, one.paper]).filter((value) => value !== null);
  const low = Math.min(...all), high = Math.max(...all);
  return (value) => (high > low ? 4 + (92 * (value - low)) / (high - low) : 50);
}

function intervalBar(one, at, ranks) {
  const bar = el("span", { class: ranks ? "interval" : "interval plain-line", "aria-hidden": "true" });
  const mark = (tag, value) => {
    const made = el(tag);
    made.style.left = `${at(value).toFixed(2)}%`;
    bar.append(made);
    return made;
  };
  if (one.low !== null) mark("i", one.low).style.width = `${(at(one.high) - at(one.low)).toFixed(2)}%`;
  if (one.value !== null) mark("b", one.value);
  if (one.paper !== null) mark("u", one.paper);
  return bar;
}

function figureRow(one, at, ranks, papers) {
  const cell = (label, text, kind = "number") => el("td", { class: kind, role: "cell", "data-label": label }, text);
  const interval = one.low === null ? (one.why ? `none: ${one.why}` : "") : `${rounded(one.low)} to ${rounded(one.high)}`;
  const beside = papers ? [cell("paper", rounded(one.paper)), cell("difference", signed(away(one)))] : [];
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, one.name), cell("ours", rounded(one.value)),
    el("td", { class: "wide", role: "cell" }, intervalBar(one, at, ranks), el("span", { class: "quiet" }, interval)), beside, cell("networks", number(one.n)));
}

function comparison(statistic, figures) {
  const papers = figures.filter((one) => one.paper !== null && one.low !== null);
  const at = scaleOf(figures), ranks = figures.every((one) => RANK.includes(one.statistic));
  const heads = ["Figure", "Ours", "95 % interval", ...(papers.length ? ["Paper", "Difference"] : []), "Networks"];
  const name = statistic ? statistic[0].toUpperCase() + statistic.slice(1) : "Figures";
  const told = papers.length ? ` Diamonds: the paper's; ${papers.filter(agreed).length} of ${papers.length} lie within our interval. Difference: ours - the paper's.` : "";
  const rows = () => [["figure", "statistic", "ours", "low", "high", "networks", "paper", "difference"],
    ...figures.map((one) => [one.name, one.statistic, ...[one.value, one.low, one.high, one.n, one.paper, away(one)].map((value) => value ?? NaN)])];
  return el("figure", { class: "card", id: `figure-measured-${statistic || "figures"}` },
    el("div", { class: "figure-head" }, el("h3", {}, name), csvButton(`figures-${statistic || "all"}`, `the figures, ${name}`, rows)),
    scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, sortable(`measured-${statistic}`, el("table", { class: "forest measured", role: "table", "data-rows": figures.length }, el("caption", { class: "unseen" }, `${name}: ours with its interval${papers.length ? ", beside the paper's" : ""}`),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map((head, k) => el("th", { scope: "col", role: "columnheader", class: k === 2 ? "wide" : k ? "number" : "" }, head)))),
      el("tbody", { role: "rowgroup" }, figures.map((one) => figureRow(one, at, ranks, papers.length))))))),
    el("figcaption", {}, `Dots: ours, with the 95 % interval${ranks ? ", between -1 and 1" : ""}.${told}`));
}

function plainFigures(figures) {
  const told = figures.some((one) => one.about);
  const heads = ["Figure", "Value", ...(told ? ["What it is"] : [])];
  return el("div", { class: "card" }, el("div", { class: "figure-head" }, el("h3", {}, "Figures"), csvButton("figures", "the figures", () => [["figure", "value"], ...figures.map((one) => [one.name, one.value ?? NaN])])),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures" }, sortable("figures", el("table", { class: "plain named", "data-rows": figures.length }, el("thead", {}, el("tr", {}, heads.map((head, k) => el("th", { scope: "col", class: k === 1 ? "number" : "" }, head)))),
      el("tbody", {}, figures.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { class: "number" }, number(one.value)), told ? el("td", { class: "quiet" }, one.about) : "")))))));
}

function resultSection(content) {
  const { figures } = content;
  if (!figures.length) return null;
  const compared = figures.filter((one) => one.low !== null || one.paper !== null || one.why);
  const rest = figures.filter((one) => !compared.includes(one));
  const statistics = [...new Set(compared.map((one) => one.statistic))];
  return section("result", "What it measured", "",
    ...statistics.map((statistic) => comparison(statistic, compared.filter((one) => one.statistic === statistic))),
    rest.length ? plainFigures(rest) : "");
}
