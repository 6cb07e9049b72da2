// Draws a figure of the report (plain data for plotly, see automl/report/plotting.py) with the charts of the studio.
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { metric, number } from "./format.js";
import { Parallel } from "./parallel.js";
import { extent } from "./scales.js";

// The report writes colours of its palette; here they follow the theme.
const COLOURS = {
  "#0072b2": "var(--s1)", "#d55e00": "var(--s2)", "#009e73": "var(--s3)", "#cc79a7": "var(--s4)", "#e69f00": "var(--s5)", "#56b4e9": "var(--s6)",
  "#f0e442": "var(--c-interrupted)", "#8a8f98": "var(--c-waiting)", "#57606a": "var(--soft)", "#22272e": "var(--ink)", "#b6bcc4": "var(--faint)",
};
const SYMBOLS = { circle: "dot", x: "cross", "triangle-up": "up", "triangle-down": "down", "triangle-right": "right", "circle-open": "open", "line-ew": "dash", "line-ns-open": "upright", star: "star" };

const colour = (one) => COLOURS[String(one).toLowerCase()] || one || "var(--s1)";
const plain = (text) => String(text).replace(/<\/?b>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
const lines = (text) => String(text).replace(/<extra>.*<\/extra>/, "").split("<br>").map(plain);

// Draw a figure. Options: selection, open(number) if a trial can be opened, title for who cannot see it.
// Returns an element.
export function drawn({ data, layout }, { selection = null, open = null, title = "" } = {}) {
  if (data[0]?.type === "parcoords") return new Parallel(data[0], { selection, title }).node;
  const places = new Map();  // one chart for each pair of axes; axes that lie over others are of their chart
  for (const trace of data) {
    const y = trace.yaxis || "y";
    const own = layout[`yaxis${y.slice(1)}`] || {};
    const key = own.overlaying || y;
    if (!places.has(key)) places.set(key, []);
    places.get(key).push({ ...trace, share: Boolean(own.overlaying) });
  }
  const charts = [...places].map(([key, traces]) => {
    const n = key.slice(1);
    const chart = new Chart(places.size > 1 ? 230 : layout.height, selection);
    chart.set(specOf(traces, layout[`xaxis${n}`] || {}, layout[`yaxis${n}`] || layout.yaxis || {}, { layout, open, title }));
    return chart.node;
  });
  const heading = layout.title?.text ? h("h3", {}, plain(layout.title.text)) : null;
  return h("div", {}, heading, charts.length > 1 ? h("div", { class: "curves" }, charts) : charts);
}

function specOf(traces, across, down, { layout, open, title }) {
  const [x, y] = [axisOf(across, traces, "x"), axisOf(down, traces, "y")];
  const series = traces.flatMap((trace) => seriesOf(trace, x, y)).filter((one) => one.kind === "heat" || one.points.length);
  const corner = layout.meta?.corner;
  const scale = traces.find((one) => one.colorbar);
  return {
    label: [title, plain(down.title?.text || ""), plain(across.title?.text || "")].filter(Boolean).join(", "),
    x: { ...x, label: plain(across.title?.text || "") }, y: { ...y, label: plain(down.title?.text || scale?.colorbar.title?.text || "") }, series, corner,
    tip: (point) => point.tip || [`${number(point[0])}, ${number(point[1])}`],
    trial: series.some((one) => one.points?.some((point) => point.trial !== undefined)) ? (point) => point.trial : null,
    open: open && ((point) => point.trial !== undefined && open(point.trial)),
  };
}

function axisOf(axis, traces, key) {
  const log = axis.type === "log";
  const values = traces.filter((one) => !one.share).flatMap((one) => (one.base ? one[key === "x" ? "base" : key].map((at, i) => (key === "x" ? at + one.x[i] : at)).concat(key === "x" ? one.base : []) : one[key] || []));
  const names = values.some((one) => typeof one === "string") ? [...new Set(values)] : null;
  if (names) return { names, range: [-0.5, names.length - 0.5], tight: true, ticks: names.map((name, i) => [i, plain(name)]) };
  const errors = traces.flatMap((one) => (one[`error_${key}`] ? one[key].flatMap((at, i) => [at + one[`error_${key}`].array[i], at - one[`error_${key}`].arrayminus[i]]) : []));
  let range = axis.range ? axis.range.map((one) => (log ? 10 ** one : one)) : extent(values.concat(errors));
  if (!axis.range && (axis.rangemode === "tozero" || (key === "x" && traces.some((one) => one.type === "bar")))) range = [Math.min(0, range[0]), range[1]];
  const ticks = axis.tickvals ? axis.tickvals.map((value, i) => [value, plain(axis.ticktext[i])]) : axis.dtick ? whole(range, axis.dtick) : undefined;
  const title = plain(axis.title?.text || "");
  return { range, log, ticks, tight: Boolean(axis.range), hidden: axis.visible === false, format: (value) => metric(title, value) };
}

function whole([low, high], step) {
  return Array.from({ length: Math.floor((high - 1) / step) + 1 }, (_, i) => 1 + i * step).filter((one) => one >= low).map((one) => [one, String(one)]);
}

function seriesOf(trace, x, y) {
  if (trace.type === "heatmap" || trace.type === "contour") return [heatOf(trace)];
  if (trace.type === "bar") return barsOf(trace, y);
  const points = trace.x.map((at, i) => pointOf(trace, at, trace.y[i], i));
  const color = colour(trace.marker?.color && !trace.mode.startsWith("lines") ? trace.marker.color : trace.line?.color || trace.fillcolor || trace.marker?.color);
  const common = { color, share: trace.share, quiet: trace.hoverinfo === "skip", points };
  const found = [];
  if (trace.error_y) found.push({ kind: "interval", color: colour(trace.error_y.color), points: points.map((point, i) => [point[0], point[1], i, point[1] - trace.error_y.arrayminus[i], point[1] + trace.error_y.array[i]]) });
  if (trace.mode.includes("lines")) {
    const kind = trace.fill === "toself" ? "polygon" : trace.fill ? "area" : trace.line?.shape === "hv" ? "step" : "line";
    found.push({ ...common, kind, shape: trace.line?.shape === "hv" ? "step" : "", toEnd: false, dashed: Boolean(trace.line?.dash), size: trace.line?.width, name: trace.name, tips: !common.quiet && !trace.mode.includes("markers") && kind !== "polygon" });
  }
  if (trace.mode.includes("markers")) {
    const symbols = trace.marker.symbol;
    points.forEach((point, i) => { point.shape = SYMBOLS[Array.isArray(symbols) ? symbols[i] : symbols] || "dot"; });
    found.push({ ...common, kind: "points", color: colour(trace.marker.color || color), size: trace.marker.size, name: trace.mode.includes("lines") ? "" : trace.name, shape: Array.isArray(symbols) ? "dot" : SYMBOLS[symbols] });
  }
  return found;
}

function pointOf(trace, x, y, i) {
  const point = [x, y, i];
  const trial = trace.customdata?.[i];
  if (trial !== undefined && trial !== null) point.trial = trial;
  point.tip = tipOf(trace, i, x, y);
  return point;
}

function tipOf(trace, i, x, y) {
  const text = (Array.isArray(trace.hovertext) ? trace.hovertext : trace.text)?.[i];
  if (trace.hovertemplate) return lines(trace.hovertemplate.replace(/%\{(\w)[^}]*\}/g, (_, key) => (key === "x" ? number(x) : typeof y === "string" ? y : number(y))).replaceAll("%{text}", text ?? ""));
  return text ? lines(text) : [number(y)];
}

function barsOf(trace, y) {
  const color = colour(trace.marker?.color);
  const points = trace.x.map((length, i) => {
    const from = trace.base?.[i] ?? 0;
    const at = y.names ? y.names.indexOf(trace.y[i]) : trace.y[i];
    const point = pointOf(trace, from, at, i);
    point.tip = tipOf(trace, i, length, trace.y[i]);
    point.push(from + length);
    if (trace.text?.[i]) { point.text = plain(trace.text[i]); point.short = Boolean(trace.base); }
    return point;
  });
  const found = [{ kind: "bars", color, points, name: trace.name }];
  if (trace.error_x) found.push({ kind: "whisker", color: "var(--ink)", points: points.map((point, i) => [point[0], point[1], i, trace.x[i] - trace.error_x.arrayminus[i], trace.x[i] + trace.error_x.array[i]]) });
  return found;
}

function heatOf(trace) {
  const [low, high] = trace.zmin === undefined ? extent(trace.z.flat().map((one) => one ?? NaN)) : [trace.zmin, trace.zmax];
  const colors = trace.meta?.colors || ["var(--h0)", "var(--h1)", "var(--h2)"];
  return { kind: "heat", xs: trace.x, ys: trace.y, z: trace.z.map((row) => row.map((one) => one ?? NaN)), low, high, colors, levels: trace.type === "contour" ? 7 : 0, points: [] };
}
