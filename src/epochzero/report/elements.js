// Elements, numbers as people read them, and files to save. Text is only ever put in as text.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// A drawing of ours, kept only where it parses as SVG; scripts in it could not run, by the page's policy too.
function drawing(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.namespaceURI !== SVG || parsed.localName !== "svg") return null;
  parsed.querySelectorAll("script, foreignObject, a, image, use").forEach((node) => node.remove());
  const made = document.importNode(parsed, true);
  made.style.setProperty("--natural", `${made.viewBox.baseVal.width}px`);
  return made;
}

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(3).replace("e+", "e");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 5 });
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${+(value / unit).toPrecision(4)} ${letter}`;
  }
  return `${+value.toPrecision(6)}`;
}

function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toPrecision(3)} s`;
  return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
}

const withUnit = (column, value) => (column.unit && !Number.isNaN(value) ? `${number(value)} ${column.unit}` : number(value));
// The value of a network with its interval, where it was measured with one.
const ends = (column, i) => (column.ends && column.ends[0][i] < column.ends[1][i] ? ` [${number(column.ends[0][i])}, ${number(column.ends[1][i])}]` : "");
const measured = (column, i) => `${number(column.values[i])}${ends(column, i)}${column.unit && !Number.isNaN(column.values[i]) ? ` ${column.unit}` : ""}`;
const plural = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

function csvCell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`; // so that no spreadsheet takes a name for a formula
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveCsv(name, rows) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\n");
  const link = el("a", { href: URL.createObjectURL(new Blob([text, "\n"], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const csvButton = (name, what, rows) =>
  el("button", { type: "button", class: "button small", id: `csv-${name}`, "aria-label": `Download ${what} as CSV`, click: () => saveCsv(`${name}.csv`, rows()) }, "CSV");

function choice(id, label, options, chosen, change) {
  const list = el("select", { id, change: (event) => change(event.target.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return el("label", { class: "choice", for: id }, el("span", {}, label), list);
}

const tip = {
  node: document.getElementById("tip"),
  show(lines, x, y, image = null) {
    this.node.replaceChildren(...lines.map(([name, value]) =>
      el("div", { class: name ? "pair" : "name" }, name ? el("span", {}, name) : "", el("b", {}, value))), ...(image ? [el("div", { class: "drawing" }, image)] : []));
    this.node.hidden = false;
    const { width, height } = this.node.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? Math.max(8, x - 16 - width) : x + 16;
    const top = y + 16 + height > innerHeight ? Math.max(8, y - 16 - height) : y + 16;
    this.node.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  },
  hide() { this.node.hidden = true; },
};

const say = (text) => { document.getElementById("said").textContent = text; };
