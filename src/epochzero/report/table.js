// All networks: sorted by any column, filtered by words and conditions, and only the rows in sight in the page.

const ROW = 36; // pixels, as in the style
const SPARE = 12; // rows beyond what is in sight
const CONDITION = /^(.+?)(<=|>=|<|>|=)(-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([kmgbt]?)$/i;
const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9, b: 1e9, t: 1e12 };
const COMPARE = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b,
};

// What stays when a live report draws itself anew.
const kept = { sort: null, down: true, filter: "", top: 0 };

class CandidateTable {
  constructor(content) {
    this.content = content;
    const stepColumn = { name: "step", label: "#", values: content.step.map((step) => step + 1), kind: "step", higher: false };
    const nameColumn = { name: "network", label: "Network", values: content.archs, kind: "arch", higher: false };
    this.columns = [stepColumn, nameColumn, ...content.columns];
    this.numbered = new Map([stepColumn, ...content.columns].flatMap((column) => [[column.name.toLowerCase(), column], [column.label.toLowerCase(), column]]));
    this.best = new Set(content.best.slice(0, 1));
    kept.sort ??= content.by || "step";
    kept.down = kept.touched ? kept.down : (content.column.get(kept.sort)?.higher ?? false);
    this.build();
    this.refresh();
  }

  build() {
    this.heads = this.columns.map((column, k) => {
      const button = el("button", { type: "button", class: "sorts", id: `sort-${k}`, click: () => this.sortBy(column) },
        column.label, column.unit ? el("span", { class: "quiet" }, ` ${column.unit}`) : "", el("span", { class: "arrow", "aria-hidden": "true" }));
      return el("th", { scope: "col", class: column.kind === "arch" ? "arch" : `number ${column.kind}`, title: headHint(column) }, button);
    });
    const lacks = this.content.whys.some((why) => why);
    const whyHead = lacks ? [el("th", { scope: "col", class: "why" }, "Missing")] : [];
    const head = el("tr", {}, this.heads, whyHead);
    this.width = this.columns.length + whyHead.length;
    this.lacks = lacks;
    this.body = el("tbody");
    this.table = el("table", { class: "candidates", "aria-rowcount": this.content.networks + 1 },
      el("caption", { class: "unseen" }, "All networks of the run. The buttons in the head sort."), el("thead", {}, head), this.body);
    this.box = el("div", { class: "rows", id: "rows", tabindex: 0, role: "region", "aria-label": "Table of networks",
      scroll: () => { kept.top = this.box.scrollTop; this.draw(); } }, this.table);
    this.box.style.setProperty("--rows", this.content.networks);
    this.count = el("span", { class: "quiet", id: "count", role: "status" });
    this.input = el("input", { id: "filter", type: "search", value: kept.filter, autocomplete: "off", spellcheck: "false",
      placeholder: "skip_connect  params<1M", "aria-describedby": "filter-help",
      input: (event) => { kept.filter = event.target.value; this.box.scrollTop = 0; this.refresh(); } });
    this.node = el("div", { class: "table-box" },
      el("div", { class: "tools" },
        el("label", { class: "choice grow", for: "filter" }, el("span", {}, "Filter"), this.input),
        this.count, csvButton("networks", "the networks shown", () => this.rows())),
      el("p", { class: "hint", id: "filter-help" }, "Words that the name contains, and conditions such as ", el("code", {}, "params<1M"), " or ",
        el("code", {}, `${(this.content.columns[0] ?? stepName).name}>0`), ", with spaces between them."),
      scrolling(this.box));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  sortBy(column) {
    kept.down = kept.sort === column.name ? !kept.down : !["step", "arch"].includes(column.kind) && (column.higher || column.kind === "cost");
    kept.sort = column.name;
    kept.touched = true;
    this.box.scrollTop = 0;
    this.refresh();
    say(`Sorted by ${column.label}, ${kept.down ? "descending" : "ascending"}.`);
  }

  refresh() {
    const { content } = this;
    const tests = kept.filter.replaceAll("≤", "<=").replaceAll("≥", ">=").replace(/\s*(<=|>=|<|>|=)\s*/g, "$1").replace(/(\d),(?=\d{3})/g, "$1").trim().split(/\s+/).filter(Boolean).map((word) => this.test(word));
    if (this.ranges) tests.push(this.ranges);
    const found = [];
    for (let i = 0; i < content.networks; i++) if (tests.every((test) => test(i))) found.push(i);
    const column = this.columns.find((one) => one.name === kept.sort) ?? this.columns[0];
    const { values } = column, sign = kept.down ? -1 : 1;
    found.sort((a, b) => {
      const x = values[a], y = values[b];
      if (typeof x === "string") return sign * compared(x, y) || a - b;
      if (Number.isNaN(x)) return Number.isNaN(y) ? a - b : 1;
      return Number.isNaN(y) ? -1 : sign * (x - y) || a - b;
    });
    this.order = found;
    this.heads.forEach((head, k) => {
      const chosen = this.columns[k] === column;
      if (chosen) head.setAttribute("aria-sort", kept.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    });
    const all = content.networks;
    this.count.textContent = found.length === all ? plural(all, "network") : `${found.length.toLocaleString("en-US")} of ${plural(all, "network")}`;
    this.node.dataset.shown = found.length;
    this.table.setAttribute("aria-rowcount", found.length + 1);
    this.drawn = null;
    this.draw();
  }

  // A word of the filter as a test; one that is no condition on a column has to be part of the name or of what is missing.
  test(word) {
    const parts = CONDITION.exec(word);
    const column = parts && this.numbered.get(parts[1].toLowerCase());
    if (column) {
      const limit = +(Number(parts[3]) * UNITS[parts[4].toLowerCase()]).toPrecision(15), compare = COMPARE[parts[2]];
      return (i) => compare(column.values[i], limit);
    }
    const text = word.toLowerCase();
    const { archs, why, whys } = this.content;
    return (i) => archs[i].toLowerCase().includes(text) || (why.length > 0 && whys[why[i]].toLowerCase().includes(text));
  }

  draw() {
    const height = this.box.clientHeight || 10 * ROW;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.order.length, Math.ceil((this.box.scrollTop + height) / ROW) + SPARE);
    if (this.drawn && this.drawn[0] === first && this.drawn[1] === last) return;
    this.drawn = [first, last];
    const space = (rows) => {
      const cell = el("td", { colspan: this.width });
      cell.style.height = `${rows * ROW}px`;
      return el("tr", { class: "space", "aria-hidden": "true" }, cell);
    };
    const rows = [];
    if (first) rows.push(space(first));
    for (let k = first; k < last; k++) rows.push(this.row(k));
    if (last < this.order.length) rows.push(space(this.order.length - last));
    if (!this.order.length) rows.push(el("tr", {}, el("td", { colspan: this.width, class: "nothing" }, "No network fits the filter.")));
    this.body.replaceChildren(...rows);
  }

  row(k) {
    const i = this.order[k];
    const { archs, why, whys } = this.content;
    const cells = this.columns.map((column) => (column.kind === "arch" ? el("td", { class: "arch", title: archs[i] }, archs[i]) : el("td", { class: `number ${column.kind}` }, `${number(column.values[i])}${ends(column, i)}`)));
    const missing = this.lacks ? [el("td", { class: "why", title: whys[why[i]] ?? "" }, whys[why[i]] ?? "")] : [];
    const mark = this.best.has(i) ? "best" : "";
    return el("tr", { class: `${mark}${i === this.picked ? " picked" : ""}`, "aria-rowindex": k + 2, "data-network": i },
      cells, missing);
  }

  rows() {
    const { archs, why, whys, columns } = this.content;
    const head = ["evaluation", "network", ...columns.map((column) => column.name), "missing"];
    return [head, ...this.order.map((i) => [
      this.content.step[i] + 1, archs[i], ...columns.map((column) => column.values[i]), why.length ? whys[why[i]] : ""])];
  }

  // Show one network, which somebody chose in a chart.
  show(i) {
    if (!this.order.includes(i)) { this.input.value = kept.filter = ""; this.refresh(); }
    this.picked = i;
    this.box.scrollTop = Math.max(0, this.order.indexOf(i) * ROW - this.box.clientHeight / 2);
    this.drawn = null;
    this.draw();
    this.node.scrollIntoView({ block: "nearest" });
  }
}

const stepName = { name: "step" };

function headHint(column) {
  if (column.kind === "step") return "The first evaluation of the network";
  if (column.kind === "arch") return "The network as its space writes it";
  const better = column.higher ? "higher is better" : "lower is better";
  const repeats = column.repeats > 1 ? `; the first of ${column.repeats} repeats` : "";
  return `${column.name}: ${better}${repeats}`;
}
