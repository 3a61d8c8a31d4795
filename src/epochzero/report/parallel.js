// Parallel coordinates: a line for each network through its choices, scores and costs; a range on an axis filters.

const brushes = new Map(); // name of an axis to [low, high] between 0 and 1, kept while a live report grows
const PAD = { top: 54, bottom: 28, side: 60 };
const LINES = 1500; // drawn at most
const SOON_FILLED = 20000; // networks up to which the section is filled before someone sees it
const GAP = 92; // pixels between axes, at least

function axesOf(content, { choices, column }) {
  const most = Math.max(3, 12 - content.columns.length);
  const kept = new Set(choices.slice().sort((a, b) => b.share - a.share).slice(0, most));
  const picked = choices.filter((choice) => kept.has(choice)).map(({ name, options, codes }) => ({
    name, ticks: options.map((option, k) => [k / (options.length - 1), readable(option)]),
    at: (i) => (codes[i] < 0 ? NaN : codes[i] / (options.length - 1)),
  }));
  const goals = content.columns.filter((one) => one.kind !== "score" || one === column || content.curves.includes(one.name)).slice(0, 6);
  return [...picked, ...goals.map(numericAxis).filter(Boolean)];
}

function numericAxis(column) {
  const places = known(column);
  if (places.length < 2) return null;
  const axis = new Axis({ values: column.values }, places, 0, 1, 0);
  const span = axis.forward === Math.log10 ? [axis.low, axis.high] : [axis.low, axis.high];
  const ticks = axis.ticks(5).map((value) => [(axis.forward(value) - span[0]) / (span[1] - span[0]), short(value)]).filter(([at]) => at >= 0 && at <= 1);
  return { name: column.label, ticks, at: (i) => (axis.forward(column.values[i]) - span[0]) / (span[1] - span[0]) };
}

// Whether a network lies within every range.
function withinBrushes(axes) {
  const active = axes.filter((axis) => brushes.has(axis.name)).map((axis) => [axis, ...brushes.get(axis.name)]);
  return (i) => active.every(([axis, low, high]) => { const at = axis.at(i); return at >= low - 1e-9 && at <= high + 1e-9; });
}

class Parallel {
  constructor(content, weighed, changed) {
    this.content = content;
    this.changed = changed;
    this.axes = axesOf(content, weighed);
    this.order = content.columns.length ? percentiles(weighed.column) : null;
    this.canvas = el("canvas", { role: "img", "aria-label": `A line for each network through ${this.axes.map((axis) => axis.name).join(", ")}.` });
    this.handles = this.axes.map((axis, k) => el("div", {
      class: "axis", tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 0,
      "aria-label": `Range of ${axis.name}. Arrow keys move its lower end, with Shift its upper end; Escape clears it.`, "data-axis": axis.name,
      keydown: (event) => this.key(event, k), pointerdown: (event) => this.down(event, k), pointermove: (event) => this.move(event, k),
      pointerup: () => this.up(k), pointercancel: () => this.up(k),
    }));
    this.inner = el("div", { class: "parallel-inner" }, this.canvas, this.handles);
    this.node = el("div", { class: "parallel scroll", "data-axes": this.axes.length }, this.inner);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  draw() {
    const width = Math.max(this.node.clientWidth, GAP * (this.axes.length - 1) + 2 * PAD.side), height = 340;
    if (!this.node.clientWidth) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = this.inner.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const step = (width - 2 * PAD.side) / Math.max(1, this.axes.length - 1);
    const x = (k) => PAD.side + k * step, y = (at) => height - PAD.bottom - at * (height - PAD.top - PAD.bottom);
    this.y = y;
    const style = getComputedStyle(this.node), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const inside = withinBrushes(this.axes);
    const { shown, lines } = this.lines(inside);
    const trace = (i) => {
      pen.beginPath();
      this.axes.forEach((axis, k) => {
        const at = axis.at(i);
        if (at - at !== 0) return;
        const wiggle = axis.ticks.length < 12 ? ((i * 7919) % 13 - 6) / 400 : 0; // so that equal lines do not hide each other
        pen.lineTo(x(k), y(at + wiggle));
      });
      pen.stroke();
    };
    for (const [i, kept] of lines) {
      pen.globalAlpha = kept ? 0.12 + 0.5 * ((this.order?.[i] || 0) / 100) ** 4 : 0.07;
      pen.strokeStyle = colour(kept ? "point" : "quiet");
      trace(i);
    }
    pen.globalAlpha = 1;
    const best = this.content.best[0];
    if (best !== undefined) { pen.strokeStyle = colour("winner"); pen.lineWidth = 2.5; trace(best); pen.lineWidth = 1; }
    pen.font = "12px system-ui, sans-serif";
    this.axes.forEach((axis, k) => {
      pen.strokeStyle = colour("quiet");
      pen.beginPath(); pen.moveTo(x(k), y(0)); pen.lineTo(x(k), y(1)); pen.stroke();
      pen.textAlign = "center";
      pen.fillStyle = colour("text");
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(axis.name, x(k), k % 2 ? 16 : 34, 1.8 * step);
      pen.font = "11px system-ui, sans-serif";
      for (const [at, text] of axis.ticks) this.tick(pen, colour, text, x(k), y(at), step);
      const range = brushes.get(axis.name);
      const handle = this.handles[k];
      handle.style.left = `${x(k) - 20}px`;
      handle.style.top = `${PAD.top - 8}px`;
      handle.style.height = `${height - PAD.top - PAD.bottom + 16}px`;
      handle.setAttribute("aria-valuetext", range ? range.map((at) => `${Math.round(100 * at)} %`).join(" to ") : "everything");
      handle.setAttribute("aria-valuenow", Math.round(100 * (range?.[0] ?? 0)));
      if (!range) return;
      pen.fillStyle = colour("accent");
      pen.globalAlpha = 0.28;
      pen.fillRect(x(k) - 9, y(range[1]) - 2, 18, y(range[0]) - y(range[1]) + 4);
      pen.globalAlpha = 1;
    });
    this.node.dataset.shown = shown;
  }

  tick(pen, colour, text, x, y, step) {
    const wide = Math.min(pen.measureText(text).width, step - 12);
    pen.globalAlpha = 0.82;
    pen.fillStyle = colour("card");
    pen.fillRect(x - wide / 2 - 2, y - 8, wide + 4, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = colour("text");
    pen.fillText(text, x, y + 3, step - 12);
  }

  // Those outside the ranges first; of many networks the best and an even sample.
  lines(inside) {
    const all = this.content.networks, every = Math.max(1, Math.floor(all / LINES));
    const out = [], kept = [];
    let shown = 0;
    for (let i = 0; i < all; i++) {
      const keeps = inside(i);
      shown += keeps;
      if (keeps ? kept.length < LINES && (i % every === 0 || this.order?.[i] > 99) : i % (4 * every) === 0) (keeps ? kept : out).push([i, keeps]);
    }
    return { shown, lines: [...out, ...kept] };
  }

  set(k, range) {
    const { name } = this.axes[k];
    if (range) brushes.set(name, range); else brushes.delete(name);
    this.draw();
    this.changed();
  }

  position(event) {
    const at = (this.y(0) - (event.clientY - this.inner.getBoundingClientRect().top)) / (this.y(0) - this.y(1));
    return Math.min(1, Math.max(0, at));
  }

  down(event, k) {
    this.from = this.position(event);
    this.handles[k].setPointerCapture(event.pointerId);
    event.preventDefault();
    this.handles[k].focus({ preventScroll: true });
  }

  move(event, k) {
    if (this.from === undefined) return;
    const to = this.position(event);
    if (Math.abs(to - this.from) > 0.02) this.set(k, [Math.min(this.from, to), Math.max(this.from, to)]);
    this.dragged ||= Math.abs(to - this.from) > 0.02;
  }

  up(k) {
    if (this.from !== undefined && !this.dragged) { // a tap: the option there, or all again
      const near = this.axes[k].ticks.find(([at]) => Math.abs(at - this.from) < 0.06);
      this.set(k, near && !brushes.has(this.axes[k].name) ? [near[0] - 0.02, near[0] + 0.02] : null);
    }
    this.from = this.dragged = undefined;
    say(`${plural(Number(this.node.dataset.shown), "network")} within the ranges.`);
  }

  key(event, k) {
    const step = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.2, PageDown: -0.2 }[event.key];
    if (event.key !== "Escape" && step === undefined) return;
    event.preventDefault();
    if (event.key === "Escape") { this.set(k, null); return; }
    const [low, high] = brushes.get(this.axes[k].name) ?? [0, 1];
    const clip = (at) => Math.min(1, Math.max(0, at));
    this.set(k, event.shiftKey ? [low, Math.max(low, clip(high + step))] : [Math.min(high, clip(low + step)), high]);
    say(`${this.axes[k].name}: ${plural(Number(this.node.dataset.shown), "network")} within the ranges.`);
  }
}

function choicesSection(content, table) {
  if (content.networks < 10 || !content.columns.length || !choicesOf(content.archs.slice(0, 50)).length) return null;
  const place = el("div", { class: "choices-body" });
  const made = section("choices", "What good networks have in common",
    "Drag along an axis to keep a range, tap an option to keep it, tap again to clear it. The table of all networks shows what is kept.", place);
  const fill = () => {
    const weighed = weighedChoices(content);
    if (!weighed) return;
    const count = el("p", { class: "hint", role: "status" });
    const tell = () => { count.textContent = brushes.size ? `${plural(Number(parallel.node.dataset.shown), "network")} within the ranges.` : ""; clear.hidden = !brushes.size; };
    const clear = el("button", { type: "button", class: "button small", hidden: true, click: () => { brushes.clear(); parallel.draw(); parallel.changed(); } }, "Clear the ranges");
    const parallel = new Parallel(content, weighed, () => { tell(); table.ranges = brushes.size ? withinBrushes(parallel.axes) : null; table.refresh(); });
    const caption = `Explains: the share of the variance of ${weighed.column.label}'s percentiles that the choice explains by itself. Cells: the mean percentile of the networks with that option; 50 is the middle.${content.searched ? " A search does not draw networks evenly: these figures hold for the networks that it evaluated, not for the space." : ""}`;
    place.replaceChildren(
      el("figure", { class: "card", id: "figure-parallel" }, el("div", { class: "figure-head" }, el("h3", {}, "Choices, scores and costs"), clear), scrolling(parallel.node), count,
        el("figcaption", {}, `The strongest choices by what they explain, then scores and costs. The thick line is the first network${content.networks > LINES ? `; of the others, ${LINES.toLocaleString("en-US")} at most are drawn` : ""}.`)),
      el("figure", { class: "card", id: "figure-importance" }, el("div", { class: "figure-head" }, el("h3", {}, "Which choices matter")), scrolling(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Which choices matter" }, importanceTable(weighed))), el("figcaption", {}, caption)));
    made.dataset.filled = "";
    if (brushes.size) { parallel.draw(); parallel.changed(); }
  };
  if (content.networks <= SOON_FILLED) { later(fill); return made; }
  new IntersectionObserver((seen, watch) => {
    if (seen.some((one) => one.isIntersecting)) { watch.disconnect(); fill(); }
  }, { rootMargin: "400px" }).observe(place);
  return made;
}
