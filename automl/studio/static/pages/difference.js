// Whether the difference between sweeps, or trials, is more than noise, by a test that is named.
import { get } from "../api.js";
import { h, section } from "../dom.js";
import { count, number } from "../format.js";

// `chosen` is { sweeps: [name] } or { trials: ["name:number"] }.
export function differencePanel(chosen, stop) {
  const place = h("div", { "aria-live": "polite", class: "differences" }, h("p", { class: "soft" }, "Comparing with the noise. This takes some seconds."));
  const [[key, names]] = Object.entries(chosen);
  get(`/api/difference?${names.map((one) => `${key}=${encodeURIComponent(one)}`).join("&")}`, stop.signal).then((found) => {
    place.replaceChildren(...(key === "sweeps" ? sweeps(found) : [rows(found.trials, "None of these trials can be compared: they have no value of the same goal.")]));
    place.dataset.known = key;
  }).catch((error) => {
    if (!stop.signal.aborted) place.replaceChildren(h("p", { class: "wrong" }, error.message));
  });
  return section("Is the difference more than noise?", { class: "panel", "data-panel": "difference" }, place);
}

function sweeps(found) {
  const left = found.left_out.length ? [h("p", { class: "soft" }, `${count(found.left_out.length, "sweep")} with another goal: not compared.`)] : [];
  return [...left,
    h("h3", {}, "The best configurations"), h("p", { class: "soft" }, "Compared by their new runs (automl confirm): the values in the sweeps are biased, because the best was selected for them."),
    rows(found.configurations, "There is nothing to compare."),
    h("h3", {}, "The settings of the sweeps"), h("p", { class: "soft" }, "Compared by the best values of sweeps that differ only in their seed."),
    rows(found.settings, "All sweeps have the same settings: they differ only in their seed.")];
}

function rows(found, nothing) {
  if (!found.length) return h("p", {}, nothing);
  return h("ul", { class: "verdicts" }, found.map((one) => h("li", { class: one.exceeds_noise === null ? "unknown" : one.exceeds_noise ? "yes" : "no" }, h("span", {}, one.words), one.interval ? ruler(one) : null)));
}

// The interval of the lead, beside no difference.
function ruler({ lead, interval: [low, high] }) {
  const [from, to] = [Math.min(low, 0), Math.max(high, 0)];
  const at = (value) => `${(4 + (92 * (value - from)) / (to - from || 1)).toFixed(1)}%`;
  return h("span", { class: "ruler", role: "img", "aria-label": `Interval from ${number(low)} to ${number(high)}` },
    h("i", { class: "zero", style: { left: at(0) } }), h("i", { class: "span", style: { left: at(low), width: `calc(${at(high)} - ${at(low)})` } }), h("i", { class: "lead", style: { left: at(Math.min(Math.max(lead, from), to)) } }));
}
