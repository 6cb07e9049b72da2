// Draws a chart as SVG on linear or logarithmic axes, with a tooltip for the pointer and for arrow keys.
import { h, s } from "./dom.js";
import { number } from "./format.js";

const LEFT = 58;
const BOTTOM = 40;
let made = 0;

// A chart that fills its place and is drawn again when that changes.
//   spec: { label, x: { label, range, log, ticks, format, tight }, y: the same and lines: [[value, text]],
//     series: [{ kind: line, step or points, points: [[x, y, more]], color, shape, size, name, dashed, quiet, tips, last }],
//     tip: (point, series) => [lines], open: (point) => {}, corner: { right, up } }
//   `last`: a text at the end of a line.
export class Chart {
  constructor(height = 280) {
    this.height = height;
    this.id = `clip-${++made}`;
    this.svg = s("svg", { "aria-hidden": "true", height });
    this.tip = h("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img" }, this.svg, this.tip);
    this.legend = h("figcaption", { class: "legend" });
    this.node = h("figure", { class: "chart" }, this.legend, this.plot);
    this.plot.style.setProperty("height", `${height}px`);
    this.at = null;
    new ResizeObserver(() => this.draw()).observe(this.plot);
    const on = (name, act) => this.plot.addEventListener(name, act);
    on("pointermove", (event) => this.hover(event));
    on("pointerleave", () => this.mark(null));
    on("blur", () => this.mark(null));
    on("click", () => this.at && this.spec.open?.(this.at.point));
    on("keydown", (event) => this.key(event));
  }

  set(spec) {
    this.spec = spec;
    this.plot.setAttribute("aria-label", `${spec.label}${spec.tip ? ". Left and right arrow go from point to point." : ""}`);
    const named = spec.series.filter((one) => one.name && one.points.length);
    this.legend.replaceChildren(...(named.length > 1 ? named : []).map((one) =>
      h("span", {}, h("i", { class: `key ${one.kind === "points" ? one.shape || "dot" : "line"}`, style: { "--colour": one.color }, "aria-hidden": "true" }), one.name)));
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!this.spec || !width) return;
    const { x, y, series, corner } = this.spec;
    const top = y.label ? 30 : 12;
    const widest = Math.max(0, ...(y.ticks || []).map((one) => String(Array.isArray(one) ? one[1] : one).length));
    const last = Math.max(0, ...series.map((one) => (one.last || "").length));
    this.offset = [Math.round(Math.min(Math.max(LEFT, widest * 6.8 + 14), width * 0.4)), top];
    const inner = [Math.max(width - this.offset[0] - 14 - last * 8, 10), this.height - top - BOTTOM];
    const across = scaleOf(x, inner[0], false);
    const down = scaleOf(y, inner[1], true);
    this.places = [];
    const drawn = series.map((one) => this.drawSeries(one, across, down, inner));
    this.cursor = s("path", { class: "cursor", d: "" });
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.replaceChildren(
      s("defs", {}, s("clipPath", { id: this.id }, s("rect", { x: -8, y: -8, width: inner[0] + 16 + last * 8, height: inner[1] + 16 }))),
      s("g", { transform: `translate(${this.offset.join(" ")})` }, this.axes(across, down, inner), s("g", { "clip-path": `url(#${this.id})` }, drawn),
        corner ? s("text", { class: "corner", x: corner.right ? inner[0] - 4 : 6, y: corner.up ? 12 : inner[1] - 8, "text-anchor": corner.right ? "end" : "start" }, `${corner.right ? (corner.up ? "↗" : "↘") : corner.up ? "↖" : "↙"} better`) : null, this.cursor));
    this.places.sort((a, b) => a.x - b.x);
  }

  axes(across, down, inner) {
    const { x, y } = this.spec;
    const grid = s("g", { class: "grid" });
    const most = Math.max(Math.floor((this.offset[0] - 12) / 6.4), 4);
    let free = Infinity;
    for (const [value, text] of [...down.marks].sort((a, b) => down.place(b[0]) - down.place(a[0]))) {
      const at = down.place(value);
      if (at < -1 || at > inner[1] + 1) continue;
      grid.append(s("line", { x1: 0, x2: inner[0], y1: at, y2: at }));
      if (free - at < 13) continue;  // texts must not overlap
      free = at;
      grid.append(s("text", { x: -8, y: at + 4, "text-anchor": "end" }, text.length > most ? [s("title", {}, text), `${text.slice(0, most - 1)}…`] : text));
    }
    for (const [value, text] of y.lines || []) {
      const at = down.place(value);
      if (at >= -1 && at <= inner[1] + 1) grid.append(s("line", { class: "marked", x1: 0, x2: inner[0], y1: at, y2: at }), s("text", { class: "over", x: 4, y: at - 4 }, text));
    }
    let end = -Infinity;
    for (const [value, text] of [...across.marks].sort((a, b) => across.place(a[0]) - across.place(b[0]))) {
      const at = across.place(value);
      if (at < -1 || at > inner[0] + 1) continue;
      const shown = text.length > 18 ? `${text.slice(0, 17)}…` : text;
      const half = shown.length * 3.3 + 3;
      grid.append(s("line", { class: "tick", x1: at, x2: at, y1: inner[1], y2: inner[1] + 4 }));
      if (at - half < end) continue;
      end = at + half;
      grid.append(s("text", { x: at, y: inner[1] + 18, "text-anchor": "middle" }, shown !== text ? s("title", {}, text) : null, shown));
    }
    grid.append(s("text", { class: "axis", x: inner[0], y: inner[1] + 34, "text-anchor": "end" }, x.label || ""));
    if (y.label) grid.append(s("text", { class: "axis", x: -this.offset[0] + 2, y: -16 }, y.label));
    return grid;
  }

  drawSeries(one, across, down, inner) {
    const inside = (value, most) => Math.min(Math.max(value, 0), most);
    const places = one.points.map((point) => {
      if (!Number.isFinite(point[0]) || !Number.isFinite(point[1])) return null;
      const raw = down.place(point[1]);
      const x = Number(inside(across.place(point[0]), inner[0]).toFixed(1));
      return { x, y: Number(inside(raw, inner[1]).toFixed(1)), beyond: raw < -1 ? "up" : raw > inner[1] + 1 ? "down" : null, point, one };
    });
    const known = places.filter(Boolean);
    if (this.spec.tip && !one.quiet && (one.kind === "points" || one.tips)) this.places.push(...known);
    if (one.kind === "points") return pointPaths(known, one);
    const end = known[known.length - 1];
    return [linePath(places, one, inner[0]), one.last && end ? s("text", { class: "last", x: (one.kind === "step" ? inner[0] : end.x) + 6, y: end.y + 4 }, one.last) : null];
  }

  hover(event) {
    const box = this.plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - this.offset[0], event.clientY - box.top - this.offset[1]];
    let best = null;
    let least = 30 * 30;
    for (const place of this.places || []) {
      const far = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (far < least) { least = far; best = place; }
    }
    this.mark(best);
  }

  key(event) {
    if (event.key === "Enter" && this.at) { this.spec.open?.(this.at.point); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !this.places?.length) return;
    event.preventDefault();
    const same = this.at ? this.places.findIndex(({ point, one }) => point === this.at.point && one === this.at.one) : -1;
    const now = same >= 0 ? same + step : step > 0 ? 0 : this.places.length - 1;
    this.mark(this.places[Math.min(Math.max(now, 0), this.places.length - 1)]);
  }

  mark(place) {
    this.at = place;
    this.plot.classList.toggle("opens", Boolean(place && this.spec.open));
    this.cursor?.setAttribute("d", place ? SHAPES.ring(place.x, place.y) : "");
    this.tip.hidden = !place;
    if (!place) return;
    this.tip.replaceChildren(...this.spec.tip(place.point, place.one).map((line, i) => h(i ? "span" : "b", {}, line)));
    const left = Math.min(Math.max(place.x + this.offset[0] - this.tip.offsetWidth / 2, 0), this.plot.clientWidth - this.tip.offsetWidth);
    const above = place.y + this.offset[1] - this.tip.offsetHeight - 12;
    this.tip.style.setProperty("left", `${left}px`);
    this.tip.style.setProperty("top", `${above < 0 ? place.y + this.offset[1] + 14 : above}px`);
  }
}

// The shapes.
const SHAPES = {
  dot: (x, y) => `M${x} ${y}h0`,
  cross: (x, y) => `M${x - 3.5} ${y - 3.5}l7 7m0-7l-7 7`,
  up: (x, y) => `M${x - 4} ${y + 3}l4-7l4 7z`,
  down: (x, y) => `M${x - 4} ${y - 3}l4 7l4-7z`,
  open: (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0`,
  ring: (x, y) => `M${x - 6} ${y}a6 6 0 1 0 12 0a6 6 0 1 0-12 0`,
  star: (x, y) => `M${x} ${y - 8}l2 5.6l6 .2l-4.7 3.6l1.7 5.8l-5-3.4l-5 3.4l1.7-5.8l-4.7-3.6l6-.2z`,
};

// Points of one shape are one path: ten thousand of them cost no more than one.
function pointPaths(places, one) {
  const groups = new Map();
  for (const place of places) {
    const shape = place.beyond || place.point.shape || one.shape || "dot";
    groups.set(shape, (groups.get(shape) || "") + SHAPES[shape](place.x, place.y));
  }
  return [...groups].map(([kind, d]) => s("path", { class: `points ${kind}`, d, style: colours(one, one.size || 7) }));
}

function linePath(places, one, right) {
  let d = "";
  let pen = false;
  for (const place of places) {
    if (!place) { pen = false; continue; }
    d += !pen ? `M${place.x} ${place.y}` : one.kind === "step" ? `H${place.x}V${place.y}` : `L${place.x} ${place.y}`;
    pen = true;
  }
  if (one.kind === "step" && pen && one.toEnd !== false) d += `H${right}`;
  return s("path", { class: `line ${one.dashed ? "dashed" : ""}`, d, style: colours(one, one.size || 2) });
}

function colours(one, size) {
  return { "--colour": one.color || "var(--s1)", "--size": `${size}px` };
}

// Axes: round numbers, the range to show, and places of values.
const LARGEST = 1e306;  // differences of such numbers are finite

// Round numbers between two numbers: as many as there is room for, at least two if the range allows.
function ticks(low, high, most = 5) {
  const span = high - low;
  if (!(span > 1e-300)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / most));
  let found = [];
  for (const factor of [1, 2, 5, 10, 20]) {
    const step = factor * power;
    const inside = [];
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9 && inside.length < 40; i++) inside.push(Number((i * step).toPrecision(12)));
    if (inside.length < 2 && found.length) break;
    found = inside;
    if (inside.length <= most) break;
  }
  return found.length ? found : [low, high];
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 5, 7]]) {
    const found = [];
    for (let power = first; power <= last && found.length < 700; power++) for (const one of steps) found.push(Number(`${one}e${power}`));
    const inside = found.filter((one) => one >= low * (1 - 1e-9) && one <= high * (1 + 1e-9));
    if (inside.length >= 3) return inside.filter((_, i) => i % Math.ceil(inside.length / 6) === 0);
  }
  return ticks(low, high);
}

// The range to show of values: one that diverged must not hide the others. `bad` is the bad end: 1 for high, -1 for low.
export function robust(values, bad) {
  const sorted = values.filter(Number.isFinite).map((value) => Math.min(Math.max(value, -LARGEST), LARGEST) * bad).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  const best = sorted[0];
  const worst = sorted[sorted.length - 1];
  const usual = sorted[Math.floor((sorted.length - 1) * 0.9)];
  const end = sorted.length > 8 && worst - best > 4 * (usual - best) && usual > best ? usual + 0.3 * (usual - best) : worst;
  return bad > 0 ? [best, end] : [-end, -best];
}

// Places of values on an axis of a length in pixels, the values at places, and the ticks with their text.
function scaleOf(axis, length, flipped) {
  const log = axis.log && axis.range[0] > 0;
  const unit = (value) => (log ? Math.log10(Math.min(Math.max(value, 1e-300), 1e300)) : Math.min(Math.max(value, -LARGEST), LARGEST));
  const [low, high] = axis.range.map(unit);
  const margin = (high - low) * (axis.tight ? 0 : 0.04) || (high > low ? 0 : Math.abs(low) * 0.05 || 0.5);  // also if all values are one
  const [first, last] = [low - margin, high + margin];
  const place = (value) => {
    const share = (unit(value) - first) / (last - first);
    return (flipped ? 1 - share : share) * length;
  };
  const marks = axis.ticks || (log ? logTicks(10 ** first, 10 ** last) : ticks(first, last, Math.max(Math.floor(length / (flipped ? 40 : 70)), 3)));
  return { place, marks: marks.map((one) => (Array.isArray(one) ? one : [one, (axis.format || number)(one)])) };
}
