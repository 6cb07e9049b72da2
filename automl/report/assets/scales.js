// Axes: round numbers, the range to show, and places of values.
import { number } from "./format.js";

const LARGEST = 1e306;  // differences of such numbers are finite

// Round numbers between two numbers: as many as there is room for, at least two if the range allows.
export function ticks(low, high, most = 5) {
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

export function logTicks(low, high) {
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
export function scaleOf(axis, length, flipped) {
  const log = axis.log && axis.range[0] > 0;
  const unit = (value) => (log ? Math.log10(Math.min(Math.max(value, 1e-300), 1e300)) : Math.min(Math.max(value, -LARGEST), LARGEST));
  const [low, high] = axis.range.map(unit);
  const margin = (high - low) * (axis.tight ? 0 : 0.04) || (high > low ? 0 : Math.abs(low) * 0.05 || 0.5);  // also if all values are one
  const [first, last] = [low - margin, high + margin];
  const place = (value) => {
    const share = (unit(value) - first) / (last - first);
    return (flipped ? 1 - share : share) * length;
  };
  const value = (at) => {
    const share = flipped ? 1 - at / length : at / length;
    const found = first + share * (last - first);
    return log ? 10 ** found : found;
  };
  const marks = axis.ticks || (log ? logTicks(10 ** first, 10 ** last) : ticks(first, last, Math.max(Math.floor(length / (flipped ? 40 : 70)), 3)));
  return { place, value, marks: marks.map((one) => (Array.isArray(one) ? one : [one, (axis.format || number)(one)])) };
}
