// The choices of architectures, read from their texts: each place where the texts differ is a choice, its words the options.

const MOST_OPTIONS = 24;

const all = (text, pattern) => [...text.matchAll(pattern)];

// Names of choices by the form of the text: [form, text => [name, value] of each].
const FORMS = [
  // |conv~0|+|conv~0|skip~1|: an op on each edge of a cell
  [/^\|\w+~\d/, (text) => text.split("+").flatMap((node, k) => all(node, /(\w+)~(\d+)/g).map(([, op, from]) => [`${from} → ${k + 1}`, op]))],
  // Genotype(normal=[('conv', 0), ...], reduce=...): two edges to each node
  [/^Genotype\(/, (text) => all(text, /(\w+)=\[(.*?)\]/g).flatMap(([, cell, edges]) => all(edges, /\('(\w+)', (\d+)\)/g)
    .flatMap(([, op, from], k) => [[`${cell} ${k + 1}`, op], [`${cell} ${k + 1} from`, from]]))],
  // 64-41414-0_33_111: width, stages, ops on the edges of a cell
  [/^\d+-\d+-/, (text) => {
    const [width, stages, cell] = text.split("-");
    const edges = /^\d/.test(cell) ? cell.split("_").flatMap((node, k) => [...node].map((op, from) => [`${from} → ${k + 1}`, op])) : [["cell", cell]];
    return [["width", width], ...[...stages].map((kind, k) => [`stage ${k + 1}`, kind]), ...edges];
  }],
  // Kind(in,out,stride,width,layers)...
  [/^\w+\([\d,]+\)/, (text) => all(text, /(\w+)\(([\d,]+)\)/g).flatMap(([, kind, sizes], k) => [[`${k + 1} kind`, kind],
    ...sizes.split(",").slice(1).map((size, j) => [`${k + 1} ${["out", "stride", "inner", "layers"][j] ?? j}`, size])])],
  // op:width@inputs/op:rows@inputs/left,right/merge,fm|...: blocks of a recommender
  [/^[\w-]+:\d+@\d/, (text) => text.split("|").flatMap((block, k) => {
    const parts = block.split("/").flatMap((part) => part.split(/[:@]/));
    return parts.map((part, j) => [`${k + 1} ${["dense", "width", "from", "sparse", "rows", "rows from", "pair", "extra"][j] ?? j}`, part]);
  })],
  // conv3x3:0/conv1x1:01/output:2: vertices with the vertices that they read
  [/^[a-z]\w*:\d+\//, (text) => text.split("/").flatMap((vertex, k) => vertex.split(":").map((part, j) => [`${k + 1} ${j ? "reads" : "op"}`, part]))],
  // 192:3x4,4x3.5: width, then heads and ratio of each layer
  [/^\d+:\d+x/, (text) => [["width", text.split(":")[0]], ...all(text, /(\d+)x([\d.]+)/g).flatMap(([, heads, ratio], k) => [[`${k + 1} heads`, heads], [`${k + 1} ratio`, ratio]])]],
  // w192-d6 or e1k3/e4k5: letters and numbers
  [/^(?:[a-z]\d+)+(?:[-/]|$)/, (text) => text.split("/").flatMap((part, k) => all(part, /([a-z]+)(\d+)/g).map(([, letter, size]) => [text.includes("/") ? `${k + 1} ${letter}` : letter, size]))],
  // name=value, or words
  [/./, (text) => text.split(/[|/:;,()[\]{}]/).filter(Boolean).map((word, k) => (word.includes("=") ? word.trim().split(/=(.*)/s) : [`choice ${k + 1}`, word.trim()]))],
];

// [name, value] of each choice of a text.
const readChoices = (text) => (FORMS.find(([form]) => form.test(text))?.[1](text) ?? []).map(([name, value]) => [name, value]);

// Choices that differ between networks: { name, options, codes }, -1 where a network has none.
function choicesOf(archs) {
  const found = [];
  archs.forEach((arch, i) => readChoices(arch).forEach(([name, value], k) => {
    const one = (found[k] ??= { name, numbers: new Map(), codes: new Int16Array(archs.length).fill(-1) });
    if (one.numbers.size <= MOST_OPTIONS && !one.numbers.has(value)) one.numbers.set(value, one.numbers.size);
    one.codes[i] = one.numbers.get(value) ?? -1;
  }));
  return found.filter(({ numbers }) => numbers.size > 1 && numbers.size <= MOST_OPTIONS).map(({ name, numbers, codes }) => {
    const options = [...numbers.keys()].sort(compared_);
    const places = Int16Array.from(numbers.keys(), (option) => options.indexOf(option));
    return { name, options, codes: codes.map((code) => (code < 0 ? -1 : places[code])) };
  });
}

const compared_ = (a, b) => collator.compare(a, b);
const readable = (option) => option.replace(/^nor_/, "").replace(/_connect$/, "").replaceAll("_", " ");

// Percentiles of a column among the networks that have it, from 0 to 100; higher is better.
function percentiles(column) {
  const places = known(column);
  const sign = column.higher ? 1 : -1;
  places.sort((a, b) => sign * (column.values[a] - column.values[b]));
  const found = new Float64Array(column.values.length).fill(NaN);
  for (let k = 0; k < places.length;) {
    let end = k;
    while (end < places.length && column.values[places[end]] === column.values[places[k]]) end++;
    for (let j = k; j < end; j++) found[places[j]] = (100 * (k + end)) / (2 * places.length);
    k = end;
  }
  return found;
}

// How much of the variance of the percentiles a choice explains, less what it would by chance; and the mean of each option.
function weigh(choice, ranks) {
  const count = new Array(choice.options.length).fill(0), sum = count.slice();
  let n = 0, total = 0, squares = 0;
  choice.codes.forEach((code, i) => {
    if (code < 0 || Number.isNaN(ranks[i])) return;
    count[code]++; sum[code] += ranks[i]; n++; total += ranks[i]; squares += ranks[i] ** 2;
  });
  const used = count.filter(Boolean).length;
  const whole = squares - total ** 2 / n;
  const between = sum.reduce((all, one, k) => all + (count[k] ? one ** 2 / count[k] : 0), 0) - total ** 2 / n;
  const share = n > used && whole > 0 ? Math.max(0, 1 - ((whole - between) / (n - used)) / (whole / (n - 1))) : 0;
  return { share, means: sum.map((one, k) => (count[k] ? one / count[k] : NaN)), count };
}

// The choices with their weights, kept for as long as the networks stay the same.
function weighedChoices(content) {
  const column = content.column.get(content.by) ?? content.columns.find((one) => one.kind !== "cost");
  if (!column) return null;
  content.choices ??= choicesOf(content.archs);
  if (!content.choices.length) return null;
  const ranks = percentiles(column);
  return { column, choices: content.choices.map((choice) => ({ ...choice, ...weigh(choice, ranks) })) };
}

const FEW = 3; // networks, below which the mean of an option says nothing

function importanceTable({ column, choices }) {
  const options = [...new Set(choices.flatMap((choice) => choice.options))].sort(compared_);
  const rows = choices.slice().sort((a, b) => b.share - a.share).slice(0, 24);
  const shared = options.length <= 10;
  const cell = (choice, option) => {
    const k = choice.options.indexOf(option);
    if (k < 0 || choice.count[k] < FEW) return el("td", { title: k < 0 ? "" : `${plural(choice.count[k], "network")}: too few` }, k < 0 ? "" : "–");
    const mean = choice.means[k];
    const made = el("td", { class: mean < 50 ? "against" : "with", title: `${choice.name} ${readable(option)}: mean percentile ${mean.toFixed(0)} by ${column.label}, ${plural(choice.count[k], "network")}` }, shared ? mean.toFixed(0) : `${readable(option)} ${mean.toFixed(0)}`);
    made.style.setProperty("--strength", `${Math.round(Math.min(1, Math.abs(mean - 50) / 40) * 62)}%`);
    return made;
  };
  const bar = (share) => {
    const made = el("i");
    made.style.width = `${(100 * share).toFixed(0)}%`;
    return el("td", { class: "share" }, el("span", { class: "bar" }, made), el("span", {}, share.toFixed(2).replace(/^0/, "")));
  };
  const widest = Math.max(...rows.map((choice) => choice.options.length));
  return el("table", { class: "heat importance", "data-rows": rows.length },
    el("caption", { class: "unseen" }, `Mean percentile by ${column.label} of the networks with each option`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Choice"), el("th", { scope: "col" }, "Explains"),
      shared ? options.map((option) => el("th", { scope: "col" }, el("span", {}, readable(option)))) : el("th", { scope: "col", colspan: widest }, "Options"))),
    el("tbody", {}, rows.map((choice) => el("tr", {}, el("th", { scope: "row" }, choice.name), bar(choice.share),
      (shared ? options : choice.options).map((option) => cell(choice, option))))));
}
