// Small tables, all of whose rows are in the page: a button in each head sorts by that column.

const sorted = {}; // table to { column, down }, kept while a live report grows

const collator = new Intl.Collator("en", { numeric: true }); // cell2 before cell10
const LEADING = /^[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?/;

// The number that a cell begins with, or its text; nothing for a cell that holds nothing.
function cellValue(row, column) {
  const text = row.cells[column].textContent.trim();
  if (!text || text === "–" || text.startsWith("none")) return null;
  const found = LEADING.exec(text);
  return found ? Number(found[0].replaceAll(",", "")) : text;
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(a, b);
}

function sortRows(table, heads, { column, down }) {
  const rows = [...table.tBodies[0].rows].map((row) => [cellValue(row, column), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compared(a, b)));
  table.tBodies[0].replaceChildren(...rows.map(([, row]) => row));
  heads.forEach((head, k) => {
    if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
  });
}

// The same table with heads that sort; what has no value comes last, whichever way.
function sortable(name, table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const label = head.textContent;
    if (!label) return;
    const sort = () => {
      const again = sorted[name]?.column === column;
      sorted[name] = { column, down: again ? !sorted[name].down : head.classList.contains("number") };
      sortRows(table, heads, sorted[name]);
      say(`Sorted by ${label}, ${sorted[name].down ? "descending" : "ascending"}.`);
    };
    head.replaceChildren(el("button", { type: "button", class: "sorts", id: `sort-${name}-${column}`, click: sort }, label, el("span", { class: "arrow", "aria-hidden": "true" })));
  });
  if (sorted[name]) sortRows(table, heads, sorted[name]);
  return table;
}
