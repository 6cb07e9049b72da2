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

export function colours(one, size) {
  return { "--colour": one.color || "var(--s1)", "--size": `${size}px` };
}
