// Parallel coordinates: a line for each trial. Dragging along an axis selects the trials that cross it there.
import { h, s } from "./dom.js";
import { extent } from "./scales.js";

const HEIGHT = 380;
const TOP = 64;
const BOTTOM = 22;
const BINS = 12;  // of colours: lines of one colour are one path
const LEAST = 74;  // pixels between two axes

export class Parallel {
  constructor(trace, { selection, title }) {
    this.trace = trace;
    this.selection = selection;
    this.ranges = new Map();  // of axes on which a part is chosen, in shares of the height
    this.svg = s("svg", { height: HEIGHT, "aria-hidden": "true" });
    this.plot = h("div", { class: "plot parallel", role: "img", tabindex: "0", "aria-label": `${title}: ${trace.dimensions.length} axes, ${trace.dimensions[0].values.length} trials` }, this.svg);
    this.plot.style.setProperty("height", `${HEIGHT}px`);
    this.plot.style.setProperty("min-width", `${trace.dimensions.length * LEAST}px`);
    this.node = h("figure", { class: "chart scroll" }, this.plot);
    this.order = trace.dimensions.map((_, i) => i);
    new ResizeObserver(() => this.draw()).observe(this.plot);
    selection?.addEventListener("change", () => { if (!this.own) this.ranges.clear(); this.draw(); });
    this.plot.addEventListener("pointerdown", (event) => this.begin(event));
    this.plot.addEventListener("pointermove", (event) => this.drag(event));
    this.plot.addEventListener("pointerup", () => { this.from = null; });
    this.plot.addEventListener("keydown", (event) => event.key === "Escape" && this.clear());
  }

  x(i) {
    return 46 + (i * (this.width - 100)) / Math.max(this.order.length - 1, 1);
  }

  y(dimension, value) {
    const [low, high] = dimension.range;
    return TOP + (1 - (value - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (!this.width) return;
    const { dimensions, line, customdata = [] } = this.trace;
    const ranks = line.color;
    const [low, high] = extent(ranks);
    const paths = Array.from({ length: BINS }, () => "");
    let faded = "";
    for (let k = 0; k < ranks.length; k++) {
      const d = dimensions.map((one, i) => `${i ? "L" : "M"}${this.x(i).toFixed(1)} ${this.y(one, one.values[k]).toFixed(1)}`).join("");
      if (this.selection && !this.selection.has(customdata[k])) faded += d;
      else paths[Math.min(Math.floor((BINS * (ranks[k] - low)) / (high - low || 1)), BINS - 1)] += d;
    }
    const axes = dimensions.map((one, i) => this.axis(one, i));
    this.svg.setAttribute("width", this.width);
    this.svg.replaceChildren(s("path", { class: "faint", d: faded }),
      ...paths.map((d, i) => s("path", { class: "strand", d, style: { "--share": `${Math.round((100 * i) / (BINS - 1))}%` } })), ...axes);
  }

  axis(one, i) {
    const x = this.x(i);
    const range = this.ranges.get(i);
    const text = one.label.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
    return s("g", { class: "grid" }, s("line", { class: "tick", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      range ? s("rect", { class: "chosen", x: x - 6, width: 12, y: range[0], height: Math.max(range[1] - range[0], 1) }) : null,
      s("text", { class: "axis", transform: `translate(${x - 4} ${TOP - 14}) rotate(-22)` }, s("title", {}, text), text.length > 16 ? `${text.slice(0, 15)}…` : text),
      (one.tickvals || []).map((value, k) => s("text", { class: "over", x: x + 5, y: this.y(one, value) + 4 }, String(one.ticktext[k]).slice(0, 12))));
  }

  begin(event) {
    if (!this.selection || event.button || event.pointerType === "touch") return;
    const box = this.plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const nearest = this.order.reduce((best, i) => (Math.abs(this.x(i) - x) < Math.abs(this.x(best) - x) ? i : best), 0);
    if (Math.abs(this.x(nearest) - x) > 24) return this.clear();
    this.from = { axis: nearest, y };
    this.plot.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  drag(event) {
    if (!this.from) return;
    const y = event.clientY - this.plot.getBoundingClientRect().top;
    this.ranges.set(this.from.axis, [Math.min(y, this.from.y), Math.max(y, this.from.y)]);
    const { dimensions, customdata } = this.trace;
    const inside = customdata.filter((_, k) => [...this.ranges].every(([i, [top, bottom]]) => {
      const at = this.y(dimensions[i], dimensions[i].values[k]);
      return at >= top && at <= bottom;
    }));
    this.own = true;
    this.selection.set(inside.length ? inside : [-1], "on the axes of the configurations");
    this.own = false;
  }

  clear() {
    this.ranges.clear();
    this.selection?.set(null);
  }
}
