// Controls for every parameter, and what the surrogates predict for the configuration.
import { act, button, role } from "../actions.js";
import { get, path } from "../api.js";
import { configuration } from "../configuration.js";
import { h, section } from "../dom.js";
import { metric, number, quoted, words } from "../format.js";
import { shell } from "../parts.js";

const STEPS = 200;  // of a slider
const PAUSE = 250;  // milliseconds after the last change, before it is asked

export function askPanel(name, data, insights) {
  const start = { ...(data.best || data.first).params };
  const tuned = data.space.filter((one) => (one.choices ? one.choices.length > 1 : one.low < one.high));
  const values = Object.fromEntries(data.space.map((one) => [one.name, one.name in start ? start[one.name] : one.default ?? one.choices?.[0] ?? one.low]));
  const controls = h("div", { class: "controls" });
  const answers = h("div", { class: "answers scroll", role: "status", tabindex: "0", "aria-label": "Predictions" });
  const line = h("div", {});
  let timer = null;
  let may = false;
  role().then((found) => { may = found === "operator"; });
  let stop = new AbortController();
  const node = section("Ask the surrogates", { class: "panel" }, h("p", { class: "soft" }, "Change a parameter to see what to expect, with 90% intervals. It begins with the best configuration."), h("div", { class: "asked" }, controls, h("div", {}, answers, line)));
  controls.replaceChildren(...tuned.map(control));
  changed(0);
  return { node, close: () => { clearTimeout(timer); stop.abort(); } };

  // A parameter exists only under some values of its parents.
  function active(one) {
    return Object.entries(one.when || {}).every(([parent, allowed]) => {
      const above = data.space.find((other) => other.name === parent);
      return active(above) && [allowed].flat().some((value) => configuration.same(value, values[parent]));
    });
  }

  function control(one) {
    const id = `ask-${data.space.indexOf(one)}`;
    const out = h("output", { for: id, class: "number" }, configuration.show(values[one.name]));
    const set = (value) => { values[one.name] = value; out.textContent = configuration.show(value); changed(PAUSE); };
    let input;
    if (one.choices) {
      input = h("select", { id, onchange: () => set(one.choices[Number(input.value)]) }, one.choices.map((value, i) => h("option", { value: i, selected: configuration.same(value, values[one.name]) }, configuration.show(value))));
      out.hidden = true;
    } else {
      input = h("input", { id, type: "range", min: 0, max: STEPS, step: 1, value: Math.round(STEPS * toUnit(one, values[one.name])), oninput: () => {
        const value = fromUnit(one, Number(input.value) / STEPS);
        input.setAttribute("aria-valuetext", number(value));
        set(value);
      } });
      input.setAttribute("aria-valuetext", number(values[one.name]));
    }
    const row = h("div", { class: "control" }, h("label", { for: id }, one.name), input, out);
    row.update = () => {
      input.disabled = !active(one);
      row.classList.toggle("off", input.disabled);
      out.textContent = input.disabled ? "not used" : configuration.show(values[one.name]);
    };
    return row;
  }

  function changed(pause) {
    for (const row of controls.children) row.update();
    clearTimeout(timer);
    timer = setTimeout(ask, pause);
  }

  async function ask() {
    stop.abort();
    stop = new AbortController();
    const params = Object.fromEntries(data.space.filter(active).map((one) => [one.name, values[one.name]]));
    const mine = stop;
    try {
      draw(await get(`/api${path(name)}/predict?params=${encodeURIComponent(JSON.stringify(params))}`, mine.signal), params);
    } catch (error) {
      if (!mine.signal.aborted) answers.replaceChildren(h("p", { class: "wrong" }, error.message));
    }
  }

  function draw(found, params) {
    const best = Object.fromEntries(data.goals.map((goal, i) => [goal.metric, data.best?.values[i]]));
    answers.replaceChildren(h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Metric"), h("th", { scope: "col" }, "Expected"), h("th", { scope: "col" }, "90% interval"), h("th", { scope: "col" }, "Best so far"))),
      h("tbody", {}, found.metrics.map((one) => h("tr", {}, h("th", { scope: "row" }, one.metric, one.doubt ? h("span", { class: "soft" }, " (uncertain model)") : null), h("td", {}, h("b", {}, metric(one.metric, one.middle))), h("td", {}, `${metric(one.metric, one.low)} to ${metric(one.metric, one.high)}`), h("td", {}, one.metric in best ? metric(one.metric, best[one.metric]) : "–"))),
        Object.entries(found.failures).map(([kind, chance]) => h("tr", {}, h("th", { scope: "row" }, `fails: ${words(kind)}`), h("td", {}, h("b", {}, `${(100 * chance).toFixed(0)}%`)), h("td", {}), h("td", {}))))),
    insights.kinds.length ? "" : h("p", { class: "soft" }, "No kind of failure has been seen."));
    const given = Object.entries(params).map(([key, value]) => quoted(`${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)).join(" ");
    line.replaceChildren(h("h3", {}, "Try it next"), may ? button("Enqueue this configuration", () => act(data.name, "enqueue", { params })) : "", shell(`automl enqueue ${quoted(data.name)} ${given}${data.store ? ` --store ${quoted(data.store)}` : ""}`));
  }
}

function toUnit(one, value) {
  const share = one.log ? Math.log(value / one.low) / Math.log(one.high / one.low) : (value - one.low) / (one.high - one.low);
  return Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0.5;
}

function fromUnit(one, share) {
  if (share <= 0) return one.low;
  if (share >= 1) return one.high;
  const raw = one.log ? one.low * (one.high / one.low) ** share : one.low + (one.high - one.low) * share;
  const stepped = one.step ? one.low + Math.round((raw - one.low) / one.step) * one.step : raw;
  const kept = one.type === "int" ? Math.round(stepped) : Number(stepped.toPrecision(4));
  return Math.min(Math.max(kept, one.low), one.high);
}
