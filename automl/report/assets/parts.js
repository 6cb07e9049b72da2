// Small pieces that several pages use.
import { h, hidden, s } from "./dom.js";
import { number, words } from "./format.js";

export const STATES = ["completed", "infeasible", "stopped", "running", "paused", "waiting", "interrupted", "failed"];

// The state of a trial or a sweep: a mark with its own shape, and a word.
export function pill(state) {
  return h("span", { class: `pill ${state}` }, h("i", { class: "mark", "aria-hidden": "true" }), words(state));
}

// How much of the budget is used, by states of trials.
export function progress(states, share) {
  const total = Object.values(states).reduce((sum, one) => sum + one, 0);
  const percent = share === null ? null : Math.round(share * 100);
  const said = STATES.filter((state) => states[state]).map((state) => `${states[state]} ${state}`).join(", ") || "no trials";
  const parts = STATES.filter((state) => states[state]).map((state) =>
    h("i", { class: `part ${state}`, style: { width: `${(100 * states[state] * (share ?? 1)) / total}%` } }));
  return h("span", { class: "progress", role: "img", "aria-label": percent === null ? said : `${percent}% of the budget used: ${said}` }, parts);
}

// Values as a small line. It rises if the values rise.
export function spark(values, width = 120, height = 28, label = "") {
  const known = (values || []).filter((value) => typeof value === "number").map((value) => Math.min(Math.max(value, -1e306), 1e306));
  if (known.length < 2) return h("span", { class: "spark none" }, known.length ? hidden(`${label} ${number(known[0])}`) : "");
  const low = Math.min(...known);
  const span = Math.max(...known) - low || 1;
  const points = known.map((value, i) => `${(2 + (i * (width - 4)) / (known.length - 1)).toFixed(1)},${(height - 3 - ((value - low) / span) * (height - 6)).toFixed(1)}`);
  const said = `${label} from ${number(known[0])} to ${number(known[known.length - 1])}`;
  return s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said },
    s("polyline", { points: points.join(" ") }));
}

// A line or some lines to copy.
export function copy(line) {
  const button = h("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(line);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } }, "Copy");
  button.setAttribute("aria-label", `Copy: ${line.slice(0, 60)}`);
  return h("div", { class: "shell" }, h(line.includes("\n") ? "pre" : "code", { tabindex: "0" }, line), button);
}

export function empty(title, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), more);
}

// A table of facts: [name, value].
export function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== "" && value !== undefined)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Radio buttons that look like one switch. `act` gets the chosen value.
export function choice(label, options, chosen, act) {
  const name = `choice-${label.replace(/\W+/g, "-")}`;
  return h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, label), Object.entries(options).map(([value, title]) =>
    h("label", {}, h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => act(value) }), h("span", {}, title))));
}
