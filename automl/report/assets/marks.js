// The shapes that a chart is made of, as SVG.
import { s } from "./dom.js";

export const SHAPES = {
  dot: (x, y) => `M${x} ${y}h0`,
  cross: (x, y) => `M${x - 3.5} ${y - 3.5}l7 7m0-7l-7 7`,
  up: (x, y) => `M${x - 4} ${y + 3}l4-7l4 7z`,
  down: (x, y) => `M${x - 4} ${y - 3}l4 7l4-7z`,
  right: (x, y) => `M${x - 3} ${y - 4}l7 4l-7 4z`,
  open: (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0`,
  ring: (x, y) => `M${x - 6} ${y}a6 6 0 1 0 12 0a6 6 0 1 0-12 0`,
  dash: (x, y) => `M${x - 5} ${y}h10`,
  upright: (x, y) => `M${x} ${y - 5}v10`,
  star: (x, y) => `M${x} ${y - 8}l2 5.6l6 .2l-4.7 3.6l1.7 5.8l-5-3.4l-5 3.4l1.7-5.8l-4.7-3.6l6-.2z`,
};

// Points of one shape are one path: ten thousand of them cost no more than one.
export function pointPaths(places, one, isFaded) {
  const groups = new Map();
  for (const place of places) {
    const shape = place.beyond || place.point.shape || one.shape || "dot";
    const key = `${shape}${isFaded(place) ? " faded" : ""}`;
    groups.set(key, (groups.get(key) || "") + SHAPES[shape](place.x, place.y));
  }
  const order = [...groups].sort(([a], [b]) => b.endsWith("faded") - a.endsWith("faded"));
  return order.map(([kind, d]) => s("path", { class: `points ${kind}`, d, style: colours(one, one.size || 7) }));
}

export function linePath(places, one, right) {
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

// Cells of a colour between two, and lines of equal value through them.
export function heat(one, across, down) {
  const edges = (values, scale) => {
    const at = values.map(scale.place);
    const middle = at.slice(1).map((value, i) => (value + at[i]) / 2);
    return at.length > 1 ? [2 * at[0] - middle[0], ...middle, 2 * at[at.length - 1] - middle[middle.length - 1]] : [0, 1e4];
  };
  const [xs, ys] = [edges(one.xs, across), edges(one.ys, down)];
  const cells = one.z.flatMap((row, j) => row.map((value, i) => {
    if (!Number.isFinite(value)) return null;
    const share = Math.min(Math.max((value - one.low) / (one.high - one.low || 1), 0), 1);
    const [left, right] = [Math.min(xs[i], xs[i + 1]), Math.max(xs[i], xs[i + 1])];
    const [top, bottom] = [Math.min(ys[j], ys[j + 1]), Math.max(ys[j], ys[j + 1])];
    const fill = share < 0.5 ? mixed(one.colors[1], one.colors[0], 2 * share) : mixed(one.colors[2], one.colors[1], 2 * share - 1);
    return s("rect", { x: left.toFixed(1), y: top.toFixed(1), width: (right - left + 0.6).toFixed(1), height: (bottom - top + 0.6).toFixed(1), style: { fill } });
  }));
  const levels = Array.from({ length: one.levels || 0 }, (_, i) => one.low + ((i + 1) * (one.high - one.low)) / (one.levels + 1));
  const d = levels.map((level) => isoline(one, level, across, down)).join("");
  return [s("g", { class: "heat" }, cells), d ? s("path", { class: "iso", d }) : null];
}

function mixed(one, other, share) {
  return `color-mix(in oklab, ${one} ${(100 * share).toFixed(1)}%, ${other})`;
}

// A line of equal value by marching squares (Lorensen and Cline, 1987, in two dimensions).
function isoline({ xs, ys, z }, level, across, down) {
  let d = "";
  for (let j = 0; j + 1 < ys.length; j++) for (let i = 0; i + 1 < xs.length; i++) {
    const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
    const crossed = [];
    for (let k = 0; k < 4; k++) {
      const [[a, b], [c, e]] = [corners[k], corners[(k + 1) % 4]];
      const [from, to] = [z[b][a], z[e][c]];
      if ((from < level) === (to < level)) continue;
      const share = (level - from) / (to - from);
      const x = across.place(xs[a]) + share * (across.place(xs[c]) - across.place(xs[a]));
      const y = down.place(ys[b]) + share * (down.place(ys[e]) - down.place(ys[b]));
      crossed.push(`${x.toFixed(1)} ${y.toFixed(1)}`);
    }
    for (let k = 0; k + 1 < crossed.length; k += 2) d += `M${crossed[k]}L${crossed[k + 1]}`;
  }
  return d;
}

export function colours(one, size) {
  return { "--colour": one.color || "var(--s1)", "--size": `${size}px` };
}
