// A chart of points on a canvas, which takes 100,000 of them: with a line through some, and each one to point at or to walk
// through with the arrow keys.

const MARGIN = { left: 62, right: 18, top: 14, bottom: 46 };
const REACH = 24; // pixels from which a point is found
const CELL = 16;
const IN = [0.25, 0.75, 0.25, 0.75], OUT = [-0.5, 1.5, -0.5, 1.5];
const ZOOMS = { "+": IN, "=": IN, "-": OUT, 0: null };
const later = window.requestIdleCallback ?? ((go) => setTimeout(go, 50));

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
  return found;
}

class Axis {
  constructor(axis, places, from, to, padded) {
    const { values } = axis;
    this.log = axis.log ?? isWide(values, places);
    this.forward = this.log ? Math.log10 : (v) => v;
    let low = Infinity, high = -Infinity;
    for (const i of places) { const v = this.forward(values[i]); if (v < low) low = v; if (v > high) high = v; }
    if (axis.zero) low = Math.min(low, 0);
    if (low === high) { const pad = Math.abs(low) * 0.1 || 1; low -= pad; high += pad; }
    const pad = (high - low) * 0.04;
    this.low = axis.zero ? low : low - pad * padded;
    this.high = high + pad * padded;
    this.from = from;
    this.to = to;
    this.scale = (to - from) / (this.high - this.low);
  }
  at(value) { return this.from + (this.forward(value) - this.low) * this.scale; }
  // The same axis between two places of itself, from 0 to 1.
  within(low, high) {
    const found = Object.assign(Object.create(Axis.prototype), this);
    const reach = this.high - this.low;
    found.low = this.low + low * reach;
    found.high = this.low + high * reach;
    found.scale = (this.to - this.from) / (found.high - found.low);
    return found;
  }
  ticks(most) {
    if (!this.log) return ticks(this.low, this.high, most);
    const powers = ticks(this.low, this.high, most).filter(Number.isInteger);
    if (powers.length > 1) return powers.map((p) => 10 ** p);
    return ticks(10 ** this.low, 10 ** this.high, most).filter((v) => v > 0);
  }
}

class Chart {
  // spec: { x, y: { values, label, log?, zero? }, places, line?, steps?, marked?, bars?, tell(i), draw?(i), pick?(i) }
  constructor(spec, label) {
    this.spec = spec;
    this.back = el("canvas", { role: "img", "aria-label": label });
    this.over = el("canvas", { "aria-hidden": "true" });
    this.node = el("div", {
      class: "chart", tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": `${label} Arrow keys walk through the points, plus and minus zoom, 0 shows everything.`,
      "data-points": spec.places.length, "data-line": spec.line ? spec.line.length : 0,
      pointermove: (e) => this.move(e), pointerdown: (e) => this.down(e), pointerup: (e) => this.up(e),
      pointerleave: (e) => { if (e.pointerType === "mouse" && !this.from) this.leave(); },
      dblclick: () => this.zoom(null), keydown: (e) => this.key(e), blur: () => this.leave(),
    }, this.back, this.over);
    this.view = [0, 1, 0, 1]; // of x and of y
    this.watch = new ResizeObserver(() => this.soon());
    this.watch.observe(this.node);
  }

  // At once where it is in sight; first things first otherwise.
  soon() {
    if (this.drawn || this.node.getBoundingClientRect().top < 1.2 * innerHeight) this.draw();
    else later(() => this.draw());
  }

  draw() {
    const width = this.node.clientWidth;
    if (!width || !this.node.isConnected) return;
    const height = Math.round(Math.min(380, Math.max(230, width * (this.spec.bars ? 0.32 : 0.62))));
    const ratio = Math.min(devicePixelRatio || 1, 2);
    for (const canvas of [this.back, this.over]) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.node.style.height = `${height}px`;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    const { x, y, places } = this.spec;
    const [left, right, low, high] = this.view;
    this.x = new Axis(x, places, MARGIN.left, width - MARGIN.right, 1).within(left, right);
    this.y = new Axis(y, places, height - MARGIN.bottom, MARGIN.top, 1).within(low, high);
    this.grid = null;
    const style = getComputedStyle(this.node);
    this.colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = this.back.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.axes(pen);
    pen.save();
    if (this.zoomed) {
      pen.beginPath();
      pen.rect(MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom);
      pen.clip();
    }
    if (this.spec.bars) this.bars(pen); else this.points(pen);
    this.highlights(pen);
    pen.restore();
    this.drawn = true;
    this.node.dataset.drawn = "";
  }

  axes(pen) {
    const { width, height } = this;
    const bottom = height - MARGIN.bottom;
    pen.font = "12px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.strokeStyle = this.colour("line");
    pen.fillStyle = this.colour("quiet");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const value of this.y.ticks(height < 260 ? 4 : 5)) {
      const at = Math.round(this.y.at(value)) + 0.5;
      pen.beginPath(); pen.moveTo(MARGIN.left, at); pen.lineTo(width - MARGIN.right, at); pen.stroke();
      pen.fillText(short(value), MARGIN.left - 8, at);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const value of this.x.ticks(width < 420 ? 4 : 7)) {
      const at = this.x.at(value);
      if (at < MARGIN.left - 1 || at > width - MARGIN.right + 1) continue;
      pen.beginPath(); pen.moveTo(Math.round(at) + 0.5, bottom); pen.lineTo(Math.round(at) + 0.5, bottom + 4); pen.stroke();
      pen.fillText(short(value), at, bottom + 8);
    }
    pen.fillStyle = this.colour("text");
    pen.fillText(this.spec.x.label, (MARGIN.left + width - MARGIN.right) / 2, height - 17, width - MARGIN.left - MARGIN.right);
    pen.save();
    pen.translate(13, (MARGIN.top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(this.spec.y.label, 0, 0, bottom - MARGIN.top);
    pen.restore();
  }

  points(pen) {
    const { places, x, y } = this.spec;
    const many = places.length;
    const side = many > 20000 ? 2 : many > 2000 ? 3 : 0;
    pen.fillStyle = this.colour("point");
    pen.globalAlpha = many > 20000 ? 0.3 : many > 2000 ? 0.5 : this.spec.steps ? 0.5 : 0.75;
    const radius = many > 400 ? 2.5 : 3.5;
    for (const i of places) {
      const a = this.x.at(x.values[i]), b = this.y.at(y.values[i]);
      if (side) pen.fillRect(a - side / 2, b - side / 2, side, side);
      else { pen.beginPath(); pen.arc(a, b, radius, 0, 7); pen.fill(); }
    }
    pen.globalAlpha = 1;
  }

  bars(pen) {
    const { places, x, y } = this.spec;
    const wide = Math.max(1, Math.min(18, ((this.width - MARGIN.left - MARGIN.right) / places.length) * 0.7));
    const floor = this.height - MARGIN.bottom;
    pen.fillStyle = this.colour("point");
    for (const i of places) {
      const top = this.y.at(y.values[i]);
      pen.fillRect(this.x.at(x.values[i]) - wide / 2, top, wide, Math.max(1, floor - top));
    }
  }

  highlights(pen) {
    const { line, steps, marked, x, y } = this.spec;
    const accent = this.colour("accent");
    pen.strokeStyle = accent;
    pen.fillStyle = accent;
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    if (line && line.length) {
      pen.beginPath();
      line.forEach((i, k) => {
        const a = this.x.at(x.values[i]), b = this.y.at(y.values[i]);
        if (!k) pen.moveTo(a, b);
        else { pen.lineTo(a, this.y.at(y.values[line[k - 1]])); pen.lineTo(a, b); }
      });
      if (steps) pen.lineTo(this.width - MARGIN.right, this.y.at(y.values[line.at(-1)]));
      pen.stroke();
      for (const i of line) { pen.beginPath(); pen.arc(this.x.at(x.values[i]), this.y.at(y.values[i]), 3.5, 0, 7); pen.fill(); }
    }
    for (const i of marked ?? []) {
      const a = this.x.at(x.values[i]), b = this.y.at(y.values[i]);
      if (!(a - a === 0 && b - b === 0)) continue;
      pen.beginPath(); pen.arc(a, b, 7, 0, 7); pen.lineWidth = 2.5; pen.strokeStyle = this.colour("winner"); pen.stroke();
    }
  }

  // The nearest point, found through a grid of cells that is made when someone first points at the chart.
  nearest(a, b) {
    const { places, x, y } = this.spec;
    if (!this.grid) {
      this.grid = new Map();
      for (const i of places) {
        const cell = `${Math.floor(this.x.at(x.values[i]) / CELL)},${this.spec.bars ? 0 : Math.floor(this.y.at(y.values[i]) / CELL)}`;
        const there = this.grid.get(cell);
        if (there) there.push(i); else this.grid.set(cell, [i]);
      }
    }
    let best, distance = REACH * REACH;
    const reach = Math.ceil(REACH / CELL), column = Math.floor(a / CELL), row = this.spec.bars ? 0 : Math.floor(b / CELL);
    for (let c = column - reach; c <= column + reach; c++) {
      for (let r = row - reach; r <= row + reach; r++) {
        for (const i of this.grid.get(`${c},${r}`) ?? []) {
          const far = (this.x.at(x.values[i]) - a) ** 2 + (this.spec.bars ? 0 : (this.y.at(y.values[i]) - b) ** 2);
          if (far < distance) { best = i; distance = far; }
        }
      }
    }
    return best;
  }

  get zoomed() { return this.view.some((at, k) => at !== k % 2); }

  // Between these shares of what is shown now; null for everything.
  zoom(shares) {
    const [a, b, c, d] = this.view;
    this.view = shares === null ? [0, 1, 0, 1]
      : [a + shares[0] * (b - a), a + shares[1] * (b - a), c + shares[2] * (d - c), c + shares[3] * (d - c)].map((at) => Math.min(1, Math.max(0, at)));
    this.node.dataset.zoomed = this.zoomed;
    this.leave();
    this.draw();
  }

  zoomButtons() {
    const button = (text, label, shares) => el("button", { type: "button", class: "button small", "aria-label": label, click: () => this.zoom(shares) }, text);
    return el("span", { class: "zooms" }, button("+", "Zoom in", IN), button("−", "Zoom out", OUT), button("All", "Show everything", null));
  }

  place(event) {
    const box = this.node.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (!this.drawn) return;
    if (event.pointerType === "mouse") { this.from = this.place(event); this.node.setPointerCapture(event.pointerId); }
    const at = this.nearest(...this.place(event));
    this.again = event.pointerType !== "mouse" && at !== undefined && at === this.chosen; // a second tap
    this.choose(at);
  }

  move(event) {
    if (!this.drawn) return;
    const at = this.place(event);
    if (this.from && Math.hypot(at[0] - this.from[0], at[1] - this.from[1]) > 8) this.frame(at);
    else if (event.pointerType === "mouse") this.choose(this.nearest(...at));
  }

  up(event) {
    const { from } = this, at = this.place(event);
    this.from = undefined;
    if (from && Math.hypot(at[0] - from[0], at[1] - from[1]) > 8) {
      const across = (x) => (Math.min(this.width - MARGIN.right, Math.max(MARGIN.left, x)) - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
      const up = (y) => (this.height - MARGIN.bottom - Math.min(this.height - MARGIN.bottom, Math.max(MARGIN.top, y))) / (this.height - MARGIN.top - MARGIN.bottom);
      const ordered = (a, b) => [Math.min(a, b), Math.max(a, b)];
      const shares = [...ordered(across(from[0]), across(at[0])), ...ordered(up(from[1]), up(at[1]))];
      if (shares[1] - shares[0] > 0.01 && shares[3] - shares[2] > 0.01) this.zoom(shares);
      return;
    }
    if (this.chosen !== undefined && (from || this.again)) this.spec.pick?.(this.chosen);
  }

  // The rectangle that is being drawn, which will be zoomed to.
  frame([a, b]) {
    this.choose(undefined);
    const pen = this.over.getContext("2d");
    pen.strokeStyle = this.colour("accent");
    pen.strokeRect(this.from[0], this.from[1], a - this.from[0], b - this.from[1]);
  }

  choose(i) {
    this.chosen = i;
    const pen = this.over.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    if (i === undefined) { tip.hide(); return; }
    const a = this.x.at(this.spec.x.values[i]), b = this.y.at(this.spec.y.values[i]);
    pen.strokeStyle = this.colour("text");
    pen.lineWidth = 2;
    pen.beginPath(); pen.arc(a, b, 6, 0, 7); pen.stroke();
    const box = this.node.getBoundingClientRect();
    tip.show(this.spec.tell(i), box.left + a, box.top + b, this.spec.draw?.(i));
  }

  leave() { if (this.drawn) this.choose(undefined); }

  key(event) {
    const { places, x } = this.spec;
    if (event.key === "Escape") { this.leave(); return; }
    if (event.key in ZOOMS) { this.zoom(ZOOMS[event.key]); return; }
    if (event.key === "Enter" && this.chosen !== undefined) { this.spec.pick?.(this.chosen); return; }
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || !places.length || !this.drawn) return;
    event.preventDefault();
    this.order ??= places.slice().sort((a, b) => x.values[a] - x.values[b]);
    const now = this.chosen === undefined ? -1 : this.order.indexOf(this.chosen);
    const next = Math.min(this.order.length - 1, Math.max(0, now + moves[event.key]));
    this.choose(this.order[next]);
    say(this.spec.tell(this.order[next]).map(([name, value]) => (name ? `${name} ${value}` : value)).join(", "));
  }
}
