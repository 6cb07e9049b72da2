// What the surrogates have learned: which parameters matter, how, how sure that is; and what they predict.
// Trials that are selected in one figure, or by a filter, are shown in all figures and in the table.
import { get, path } from "../api.js";
import { h, section } from "../dom.js";
import { drawn } from "../figure.js";
import { number } from "../format.js";
import { empty, sweepNav } from "../parts.js";
import { Selection } from "../selection.js";
import { TrialsTable } from "../trials_table.js";
import { askPanel } from "./ask.js";
import { contoursPanel } from "./contours.js";
import { paretoCharts } from "./pareto.js";
import { selectedTrials } from "./selected.js";

const LEAST = 6;  // trials with a value, for a surrogate
const PHONE = window.matchMedia("(max-width: 860px)");
const FOLDED = new Set(["dependence", "parallel", "calibration"]);  // on a phone they are screens long

export async function understandPage(frame, name) {
  frame.title(`Understand ${name}`, ["Sweeps", "/"], [name, path(name)], ["Understand", null]);
  const table = new TrialsTable(name);
  const [data] = await Promise.all([get(`/api${path(name)}`), table.refresh()]);
  const place = h("div", { class: "stack", "aria-busy": "true" });
  const content = h("div", { class: "sided" }, sweepNav(name, "Understand"), h("div", { class: "page" }, h("h1", {}, "Understand"), place));
  const stop = new AbortController();
  const selection = new Selection();
  const open = (trial) => frame.go(path(name, "trials", trial));
  let ask = null;
  if (!data.best) {
    const failed = data.states.failed || 0;
    place.append(empty("No model yet", h("p", {}, `The surrogates need at least ${LEAST} trials with a result.`), failed ? h("p", {}, h("a", { href: `${path(name, "trials")}?filter=${encodeURIComponent("state = failed")}` }, `Look at the ${failed} trials that failed`)) : null));
    return { content: [content] };
  }
  place.append(h("p", { class: "loading", role: "status" }, "Fitting the surrogates to all trials. This takes some seconds."));
  get(`/api${path(name)}/insights`, stop.signal).then((found) => {
    place.removeAttribute("aria-busy");
    place.replaceChildren(...shown(found).filter(Boolean));
    document.body.dataset.understood = name;
  }).catch((error) => {
    if (!stop.signal.aborted) place.replaceChildren(empty("The surrogates cannot answer", h("p", {}, error.message)));
  });
  return { content: [content], close: () => { stop.abort(); ask?.close(); } };

  function shown(found) {
    if (!found.metrics.length) return [empty("No model yet", h("p", {}, `The surrogates need at least ${LEAST} trials with a result.`))];
    ask = askPanel(name, data, found);
    const believed = found.metrics.filter((one) => !one.doubt);
    const chosen = selectedTrials({ name, table, data, selection });
    return [
      section("In a sentence", { class: "panel" }, h("p", { class: "headline" }, answer(believed)), found.certainty ? h("p", {}, found.certainty) : null,
        h("p", { class: "soft" }, `Learned from ${found.num_ended} trials.`), found.warnings.length ? h("ul", {}, found.warnings.map((one) => h("li", {}, one))) : null),
      ask.node,
      chosen.bar,
      panel(found, "importance"),
      data.goals.length > 1 ? frontier() : null,
      h("div", { class: "pair" }, contoursPanel({ name, found, selection, open, stop }), panel(found, "feasibility")),
      panel(found, "dependence"),
      panel(found, "parallel"),
      panel(found, "calibration"),
      chosen.panel,
    ];
  }

  // A section of the report.
  function panel(found, key) {
    const { title, caption, figures } = found.panels[key];
    const parts = [h("p", { class: "note-text" }, caption),
      h("div", { class: key === "dependence" || figures.length < 2 ? "stack" : "curves" }, figures.map((one) => drawn(one, { selection, open, title })))];
    return section(title, { class: "panel", "data-panel": key }, ...(PHONE.matches && FOLDED.has(key) ? [h("details", {}, h("summary", {}, "Show"), ...parts)] : parts));
  }

  function frontier() {
    const pareto = paretoCharts((row) => open(row[0]), selection);
    pareto.set(table, data);
    return section("Pareto front", { class: "panel", "data-panel": "pareto" }, pareto.node);
  }

  function answer(believed) {
    const first = believed.find((one) => one.metric === data.goals[0].metric);
    const effects = first?.effects.filter((one) => one.weight >= 0.1) || [];
    if (!first) return `The trials do not show yet which parameter matters for ${data.goals[0].metric}.`;
    if (!effects.length) return `No parameter matters much for ${first.metric}.`;
    const best = (effect) => effect.grid[effect.middle.indexOf(first.maximize ? Math.max(...effect.middle) : Math.min(...effect.middle))];
    return `${effects[0].name} matters most for ${first.metric}: it is best near ${number(best(effects[0]))}.${effects.length > 1 ? ` Then ${effects.slice(1, 3).map((one) => `${one.name} (near ${number(best(one))})`).join(" and ")}.` : ""}`;
  }
}
