// Why a trial was suggested: the terms of the acquisition beside the best alternative.
import { get, path } from "../api.js";
import { configuration } from "../configuration.js";
import { h, section } from "../dom.js";
import { number, quoted } from "../format.js";
import { shell } from "../parts.js";

const TITLES = { improvement: "expected improvement", constraints: "probability of keeping the constraints", success: "probability of success", cost: "cost in time", prior: "your prior" };

export function whyPanel(sweep, trial, store) {
  const place = h("div", { role: "status" });
  const stop = new AbortController();
  const button = h("button", { type: "button", onclick: ask }, "Ask the surrogates");
  async function ask() {
    button.disabled = true;
    place.replaceChildren(h("p", { class: "soft" }, "Fitting the surrogates to what was known then. This takes some seconds."));
    try {
      place.replaceChildren(...shown(await get(`/api${path(sweep, "trials", trial)}/why`, stop.signal)));
      button.remove();
    } catch (error) {
      if (!stop.signal.aborted) place.replaceChildren(h("p", { class: "wrong" }, error.message));
      button.disabled = false;
    }
  }

  function shown(found) {
    const words = h("p", { class: "why-words" }, found.words);
    if (!found.terms) return [words];
    const keys = Object.keys(TITLES).filter((key) => key in found.terms || key in found.other_terms);
    const sum = (terms) => Object.values(terms).reduce((a, b) => a + b, 0);
    const cell = (terms, key) => h("td", {}, key in terms ? number(terms[key]) : "0");
    const other = found.other;
    const given = other && Object.entries(other).map(([key, value]) => quoted(`${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)).join(" ");
    return [words, h("p", { class: "soft" }, `From ${found.num_known} ended and ${found.num_pending} open trials. The terms are logarithms and add up: 0.7 more is twice the value.`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Terms of the acquisition" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, ["Term", "this trial", other ? "best alternative" : ""].filter(Boolean).map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, TITLES[key]), cell(found.terms, key), other ? cell(found.other_terms, key) : null)),
          h("tr", { class: "goal" }, h("th", { scope: "row" }, "value"), h("td", {}, h("b", {}, number(sum(found.terms)))), other ? h("td", {}, h("b", {}, number(sum(found.other_terms)))) : null)))),
      other ? [h("p", {}, "The best alternative: ", configuration.lines(other).join(", ")), shell(`automl enqueue ${quoted(sweep)} ${given}${store ? ` --store ${quoted(store)}` : ""}`)] : ""].flat();
  }

  return { node: section("Why was this suggested?", { class: "panel why" }, place, button), close: () => stop.abort() };
}
