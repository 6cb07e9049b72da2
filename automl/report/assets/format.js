// Formats values as the terminal does (automl/core/text.py).
const CONTROLS = /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// Control characters, marks of direction and lone surrogates are escaped.
export function printable(text, keep = "") {
  return text.replace(CONTROLS, (c) => (keep.includes(c) ? c : NAMED[c] || "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));
}

// A value with 4 significant digits.
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return `[${value.map((one) => number(one, digits)).join(", ")}]`;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return size < 1000 ? String(Number(value.toPrecision(digits))) : value.toFixed(0);
}

// 20ms, 8s, 1m 05s, 2h 03m, 3d 04h
export function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds > 0 && seconds < 0.9995) return `${Math.max(seconds * 1000, 1).toFixed(0)}ms`;
  const whole = Math.floor(Math.max(seconds, 0) + 0.5);
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two((whole % 3600) / 60)}m`;
  const days = Math.floor(whole / 86400);
  return days < 1e5 ? `${days}d ${two((whole % 86400) / 3600)}h` : `${(seconds / 86400).toPrecision(3)} days`;
}

export function memory(bytes) {
  if (typeof bytes !== "number") return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= size) return `${Number((bytes / size).toPrecision(3))} ${unit}`;
  }
  return `${bytes.toFixed(0)} B`;
}

// A metric; by convention a name that ends in _bytes holds bytes.
export function metric(name, value) {
  return name.endsWith("_bytes") ? memory(value) : number(value);
}

// 2026-11-22 20:41, in the time zone of the reader
export function date(seconds) {
  if (!Number.isFinite(seconds) || Math.abs(seconds) > 8e12) return "–";
  const at = new Date(seconds * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

export function count(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

// A cause in words: out_of_memory is "out of memory".
export function words(kind) {
  return String(kind).replaceAll("_", " ");
}
