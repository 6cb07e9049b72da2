// Two parameters together: a person chooses the metric and both axes.
import { get, path } from "../api.js";
import { h, section } from "../dom.js";
import { drawn } from "../figure.js";

export function contoursPanel({ name, found, selection, open, stop }) {
  const models = found.metrics.filter((one) => one.effects.length > 1);
  if (!models.length) return section("Two parameters together", { class: "panel" }, h("p", { class: "soft" }, "No believable model depends on two parameters."));
  const place = h("div", { class: "contours", "aria-live": "polite" });
  const chosen = { metric: models[0].metric };
  const controls = h("div", { class: "bar axes" });
  let turn = 0;
  start();
  return section("Two parameters together", { class: "panel", "data-panel": "contours" },
    h("p", { class: "note-text" }, "The metric that the model expects for each pair of values, averaged over the tried values of all other parameters. A stronger colour is better; dots are trials."), controls, place);

  function start() {
    const { effects } = models.find((one) => one.metric === chosen.metric);
    [chosen.x, chosen.y] = effects.slice(0, 2).map((one) => one.name);
    offer(effects.map((one) => one.name));
    ask();
  }

  function offer(names) {
    const choose = (key, title, options, act) => {
      const field = h("select", { id: `contours-${key}` }, options.map((one) => h("option", { selected: one === chosen[key] }, one)));
      field.addEventListener("change", () => act(field.value));
      return h("label", { for: field.id }, `${title} `, field);
    };
    const axis = (key, other) => (value) => {
      if (value === chosen[other]) chosen[other] = chosen[key];  // the same on both axes says nothing: they change places
      chosen[key] = value;
      offer(names);
      document.getElementById(`contours-${key}`)?.focus();
      ask();
    };
    controls.replaceChildren(
      choose("metric", "Metric", models.map((one) => one.metric), (value) => { chosen.metric = value; start(); document.getElementById("contours-metric")?.focus(); }),
      choose("x", "Across", names, axis("x", "y")), choose("y", "Up", names, axis("y", "x")));
  }

  async function ask() {
    const mine = ++turn;
    const query = ["metric", "x", "y"].map((key) => `${key}=${encodeURIComponent(chosen[key])}`).join("&");
    try {
      const figure = await get(`/api${path(name)}/contours?${query}`, stop.signal);
      if (mine !== turn) return;
      delete figure.layout.title;
      place.replaceChildren(drawn(figure, { selection, open, title: `${chosen.metric} by ${chosen.x} and ${chosen.y}` }));
      place.dataset.axes = `${chosen.metric} ${chosen.x} ${chosen.y}`;
    } catch (error) {
      if (mine === turn && !stop.signal.aborted) place.replaceChildren(h("p", { class: "wrong" }, error.message));
    }
  }
}
