// Draws a chart as SVG on linear or logarithmic axes: with a tooltip, tools, and trials that can be selected.
import { h, s } from "./dom.js";
import { SHAPES, colours, heat, linePath, pointPaths } from "./marks.js";
import { scaleOf } from "./scales.js";
import { saveSvg } from "./save.js";

const LEFT = 58;
const RIGHT = 14;
const BOTTOM = 40;
const DRAG = 5;  // pixels; a shorter way is a click

// A chart that fills its place and is drawn again when that changes.
//   spec: { label, x: { label, range, log, ticks, format, tight }, y: the same,
//     series: [{ kind, points: [[x, y, more, low, high]], color, shape, size, name, dashed, share }],
//     tip: (point, series) => [lines], open: (point) => {}, trial: (point) => number, corner: { right, up } }
//   kinds: line, step, area, polygon, points, band, interval, whisker, bars ([from, y, more, to]), heat ({ xs, ys, z, low, high, colors, levels })
// `share`: y is a part of the height. If the spec has `trial` and there is a selection, dragging selects trials.
export class Chart {
  constructor(height = 280, selection = null) {
    this.height = height;
    this.selection = selection;
    this.svg = s("svg", { "aria-hidden": "true", height });
    this.tip = h("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    this.box = h("div", { class: "brush", "aria-hidden": "true" });
    this.box.hidden = true;
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img" }, this.svg, this.box, this.tip);
    this.legend = h("figcaption", { class: "legend" });
    this.tools = h("div", { class: "tools" });
    this.node = h("figure", { class: "chart" }, this.tools, this.legend, this.plot);
    this.plot.style.setProperty("height", `${height}px`);
    this.at = null;
    this.zoom = null;
    this.zooming = false;
    this.selected = () => this.draw();
    new ResizeObserver(() => this.draw()).observe(this.plot);
    const on = (name, act) => this.plot.addEventListener(name, act);
    on("pointermove", (event) => (this.from ? this.drag(event) : this.hover(event)));
    on("pointerleave", () => this.from || this.mark(null));
    on("pointerdown", (event) => this.begin(event));
    on("pointerup", (event) => this.end(event));
    on("pointercancel", () => this.drop());
    on("blur", () => this.mark(null));
    on("keydown", (event) => this.key(event));
  }

  get selects() {
    return Boolean(this.selection && this.spec?.trial);
  }

  set(spec) {
    this.spec = spec;
    const keys = [spec.tip ? "Left and right arrow go from point to point." : "", this.selects ? "Space selects a trial." : ""].filter(Boolean).join(" ");
    this.plot.setAttribute("aria-label", `${spec.label}${keys ? `. ${keys}` : ""}`);
    this.plot.classList.toggle("selects", this.selects);
    const named = spec.series.filter((one) => one.name);
    this.legend.replaceChildren(...(named.length > 1 ? named : []).map((one) =>
      h("span", {}, h("i", { class: `key ${one.kind === "points" ? one.shape || "dot" : one.kind === "bars" ? "square" : "line"}`, style: { "--colour": one.color }, "aria-hidden": "true" }), one.name)));
    if (this.selection) {  // a chart that has left the page hears nothing more
      this.selection.removeEventListener("change", this.selected);
      if (this.selects) this.selection.addEventListener("change", this.selected);
    }
    this.offer();
    this.draw();
  }

  offer() {
    const tool = (text, title, act, pressed) => h("button", { type: "button", title, "aria-pressed": pressed === undefined ? null : String(pressed), onclick: act }, text);
    const zoomable = this.spec.series.some((one) => one.kind !== "bars" && one.kind !== "heat");
    this.tools.replaceChildren(...[
      zoomable && this.selects ? tool("Zoom", "Drag to zoom instead of selecting trials", () => { this.zooming = !this.zooming; this.offer(); }, this.zooming) : null,
      this.zoom ? tool("Whole", "Show the whole range again", () => this.zoomTo(null)) : null,
      tool("Save", "Save the figure as SVG", () => saveSvg(this.svg, this.spec.label))].filter(Boolean));
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!this.spec || !width) return;
    const { x, y, series, corner } = this.spec;
    const top = y.label ? 30 : 12;
    const widest = Math.max(0, ...(y.ticks || []).map((one) => String(Array.isArray(one) ? one[1] : one).length));
    this.offset = [Math.round(Math.min(Math.max(LEFT, widest * 6.8 + 14), width * 0.4)), top];
    const inner = [Math.max(width - this.offset[0] - RIGHT, 10), this.height - top - BOTTOM];
    const across = scaleOf(this.zoom ? { ...x, range: this.zoom[0], tight: true, ticks: x.log || !x.ticks ? undefined : x.ticks } : x, inner[0], false);
    const down = scaleOf(this.zoom ? { ...y, range: this.zoom[1], tight: true, ticks: y.log || !y.ticks ? undefined : y.ticks } : y, inner[1], true);
    this.scales = { across, down, inner };
    this.places = [];
    const drawn = series.map((one) => this.drawSeries(one, across, down, inner));
    this.cursor = s("path", { class: "cursor", d: "" });
    const clip = `clip-${this.id ??= ++made}`;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.replaceChildren(
      s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: -8, y: -8, width: inner[0] + 16, height: inner[1] + 16 }))),
      s("g", { transform: `translate(${this.offset.join(" ")})` }, this.axes(across, down, inner), s("g", { "clip-path": `url(#${clip})` }, drawn),
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
      if (at < -1 || at > inner[1] + 1 || y.hidden) continue;
      grid.append(s("line", { x1: 0, x2: inner[0], y1: at, y2: at }));
      if (free - at < 13) continue;  // texts must not overlap
      free = at;
      grid.append(s("text", { x: -8, y: at + 4, "text-anchor": "end" }, text.length > most ? [s("title", {}, text), `${text.slice(0, most - 1)}…`] : text));
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
    if (one.kind === "heat") return heat(one, across, down);
    const inside = (value) => Math.min(Math.max(value, 0), inner[1]);
    const at = (value) => Number(value.toFixed(1));
    if (one.kind === "bars") return this.drawBars(one, across, down, inner);
    if (one.kind === "band" || one.kind === "interval" || one.kind === "whisker") {
      const ends = one.points.map(([a, b, , low, high]) => (one.kind === "whisker" ? [across.place(low), down.place(b), across.place(high)] : [across.place(a), inside(down.place(low)), inside(down.place(high))]).map(at));
      const d = one.kind === "whisker" ? ends.map(([from, y, to]) => `M${from} ${y}H${to}`).join("") : one.kind === "interval" ? ends.map(([x, low, high]) => `M${x} ${low}V${high}`).join("")
        : `M${[...ends.map(([x, low]) => `${x} ${low}`), ...ends.reverse().map(([x, , high]) => `${x} ${high}`)].join("L")}z`;
      return s("path", { class: one.kind === "whisker" ? "interval" : one.kind, d: one.points.length ? d : "", style: colours(one, 2) });
    }
    const places = one.points.map((point) => {
      if (!Number.isFinite(point[0]) || !Number.isFinite(point[1])) return null;
      const raw = one.share ? (1 - point[1]) * inner[1] : down.place(point[1]);
      const far = across.place(point[0]);
      const x = this.zoom ? far : Math.min(far, inner[0]);
      return { x: at(x), y: at(this.zoom ? raw : inside(raw)), beyond: this.zoom ? null : raw < -1 ? "up" : raw > inner[1] + 1 ? "down" : far > inner[0] + 1 ? "right" : null, point, one };
    });
    const known = places.filter((place) => place && (!this.zoom || (place.x > -8 && place.x < inner[0] + 8 && place.y > -8 && place.y < inner[1] + 8)));
    if (one.kind === "points") {
      if (this.spec.tip && !one.quiet) this.places.push(...known);
      const faded = this.selects && this.selection.trials ? ({ point }) => !this.selection.has(this.spec.trial(point)) : () => false;
      return pointPaths(known, one, faded);
    }
    if (one.tips) this.places.push(...known);
    if (one.kind === "area" || one.kind === "polygon") {
      const line = linePath(places, { ...one, kind: one.shape === "step" ? "step" : "line", toEnd: false }, inner[0]).getAttribute("d");
      const close = one.kind === "area" && known.length ? `V${at(inside(down.place(0)))}H${known[0].x}z` : "z";
      return [s("path", { class: "band", d: line ? line + close : "", style: colours(one, 2) }), one.kind === "area" ? s("path", { class: "line", d: line, style: colours(one, one.size || 2) }) : null];
    }
    return linePath(places, one, inner[0]);
  }

  drawBars(one, across, down) {
    const thick = Math.max(Math.min(Math.abs(down.place(1) - down.place(0)) * 0.72, 26), 2);
    return one.points.map((point) => {
      const [from, y, , to] = point;
      const [a, b] = [across.place(from), across.place(to)].sort((p, q) => p - q);
      const middle = down.place(y);
      const faded = this.selects && !this.selection.has(this.spec.trial(point));
      if (this.spec.tip) this.places.push({ x: (a + b) / 2, y: middle, point, one, wide: (b - a) / 2, high: thick / 2 });
      const rect = s("rect", { class: `block ${faded ? "faded" : ""}`, x: a.toFixed(1), y: (middle - thick / 2).toFixed(1), width: Math.max(b - a - 0.5, 1).toFixed(1), height: thick.toFixed(1), rx: 2, style: colours(one, 2) });
      if (!point.text) return rect;
      const fits = b - a > point.text.length * 7 + 8;
      return [rect, fits || !point.short ? s("text", { class: fits ? "inside" : "outside", x: fits ? (a + b) / 2 : b + 6, y: middle + 4, "text-anchor": fits ? "middle" : "start" }, point.text) : null];
    });
  }

  // pointer and keyboard

  where(event) {
    const box = this.plot.getBoundingClientRect();
    return [event.clientX - box.left - this.offset[0], event.clientY - box.top - this.offset[1]];
  }

  hover(event) {
    const [x, y] = this.where(event);
    let best = null;
    let least = 30 * 30;
    for (const place of this.places || []) {
      const far = Math.max(Math.abs(place.x - x) - (place.wide || 0), 0) ** 2 + Math.max(Math.abs(place.y - y) - (place.high || 0), 0) ** 2;
      if (far < least) { least = far; best = place; }
    }
    this.mark(best);
  }

  begin(event) {
    if (event.button || event.pointerType === "touch" || !this.scales) return;
    this.from = this.where(event);
    this.plot.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const rect = this.rect(event);
    this.box.hidden = !rect;
    if (!rect) return;
    this.mark(null);
    for (const [key, value] of Object.entries({ left: rect[0][0] + this.offset[0], top: rect[1][0] + this.offset[1], width: rect[0][1] - rect[0][0], height: rect[1][1] - rect[1][0] })) this.box.style.setProperty(key, `${value}px`);
  }

  rect(event) {
    const to = this.where(event);
    if (Math.hypot(to[0] - this.from[0], to[1] - this.from[1]) < DRAG) return null;
    return [0, 1].map((i) => [this.from[i], to[i]].sort((a, b) => a - b).map((one) => Math.min(Math.max(one, -8), this.scales.inner[i] + 8)));
  }

  drop() {
    this.from = null;
    this.box.hidden = true;
  }

  end(event) {
    if (!this.from) { if (this.at) this.spec.open?.(this.at.point); return; }
    const rect = this.rect(event);
    this.drop();
    if (!rect) {
      if (this.at) this.spec.open?.(this.at.point);
      else if (this.selects && this.selection.trials) this.selection.set(null);
      return;
    }
    if (this.selects && !this.zooming) {
      const inside = this.places.filter(({ x, y }) => x >= rect[0][0] && x <= rect[0][1] && y >= rect[1][0] && y <= rect[1][1]);
      this.selection.set(inside.map(({ point }) => this.spec.trial(point)).filter((one) => one !== undefined), `in the figure “${this.spec.label}”`);
    } else if (this.spec.series.some((one) => one.kind !== "bars")) {
      this.zoomTo([rect[0].map(this.scales.across.value), [...rect[1]].reverse().map(this.scales.down.value)]);
    }
  }

  zoomTo(zoom) {
    this.zoom = zoom;
    this.offer();
    this.draw();
  }

  key(event) {
    if (event.key === "Enter" && this.at) { this.spec.open?.(this.at.point); return; }
    if (event.key === " " && this.at && this.selects) { event.preventDefault(); const { at } = this; this.selection.toggle(this.spec.trial(at.point)); this.mark(at); return; }
    if (event.key === "Escape") { if (this.selects && this.selection.trials) this.selection.set(null); this.zoomTo(null); return; }
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
    this.cursor?.setAttribute("d", place && !place.wide ? SHAPES.ring(place.x, place.y) : "");
    this.tip.hidden = !place;
    if (!place) return;
    this.tip.replaceChildren(...this.spec.tip(place.point, place.one).map((line, i) => h(i ? "span" : "b", {}, line)));
    const left = Math.min(Math.max(place.x + this.offset[0] - this.tip.offsetWidth / 2, 0), this.plot.clientWidth - this.tip.offsetWidth);
    const above = place.y + this.offset[1] - this.tip.offsetHeight - 12;
    this.tip.style.setProperty("left", `${left}px`);
    this.tip.style.setProperty("top", `${above < 0 ? place.y + this.offset[1] + 14 : above}px`);
  }
}

let made = 0;
