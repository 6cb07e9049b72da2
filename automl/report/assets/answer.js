// The answer: what is recommended, how sure that is, a line for each parameter, whether to go on, what next.
import { act } from "./actions.js";
import { inside } from "./api.js";
import { h, hidden, section } from "./dom.js";
import { count } from "./format.js";
import { copy } from "./parts.js";
import { shown } from "./rows.js";

export function answerView(data) {
  const found = data.answer;
  if (!found || !found.params) {
    const [first, ...more] = data.headline.split("\n");
    const waits = data.best && !found ? h("p", { class: "soft" }, "How sure this is, and what matters, is being worked out.") : null;
    const ended = data.states.failed && data.states.failed === Object.values(data.states).reduce((a, b) => a + b, 0);
    return section("Answer", { class: `panel answer ${ended ? "bad" : ""}` }, h("p", { class: "headline" }, first), more.length ? h("pre", {}, more.join("\n")) : null, waits);
  }
  const [first, ...rest] = found.lines;
  const ended = ["completed", "stopped", "failed", "infeasible"].reduce((sum, state) => sum + (data.states[state] || 0), 0);
  const since = ended - found.trials;
  return section("Answer", { class: "panel answer" },
    h("p", { class: "headline" }, first),
    h("p", {}, rest.join(" ")),
    found.luck ? h("p", { class: "small soft" }, found.luck) : null,
    found.confirmation ? h("p", {}, found.confirmation) : null,
    since > 0 ? h("p", { class: "small soft" }, `It is of ${count(found.trials, "trial")} that ended; ${count(since, "trial")} since. It follows by itself.`) : null,
    picture(found, data),
    found.outlook ? h("p", { class: "outlook" }, h("b", {}, "Is it worth going on? "), found.outlook, ".") : null,
    found.unknown ? h("p", { class: "soft" }, found.unknown) : null,
    recipes(found, data),
    nexts(found, data));
}

// A row for each parameter: its range, the trials, the default, the value, the plateau, the way back.
function picture(found, data) {
  if (!found.rows.length) return null;
  const default_ = data.has_default ? "default" : "trial 0";
  return h("div", { class: "rows-of" },
    h("p", { class: "legend" }, legend("chosen", "recommended"), legend("band", "as good, within the noise of a run"), legend("tick", default_), legend("dot", "trials, a stronger dot is better")),
    h("div", { role: "list", "aria-label": "Parameters, the costliest to put back first" }, found.rows.map((row) => h("div", { class: "parameter", role: "listitem" },
      h("span", { class: "name" }, row.name), h("span", { class: "words" }, h("b", {}, shown(row.value)), row.good ? h("span", { class: "soft" }, ` (${row.good})`) : null),
      track(row), h("span", { class: "back" }, row.back)))));
}

function legend(kind, text) {
  return h("span", {}, h("i", { class: `mini ${kind}`, "aria-hidden": "true" }), text);
}

function track(row) {
  const at = (place) => `${(100 * place).toFixed(2)}%`;
  const ends = row.is_choice
    ? row.ends.map((name, i) => h("span", { class: `option ${Math.abs((i + 0.5) / row.ends.length - row.at) < 1e-3 ? "on" : ""}`, style: { left: at((i + 0.5) / row.ends.length), "max-width": at(1 / row.ends.length) } }, name))
    : [h("span", { class: "low" }, row.ends[0]), h("span", { class: "high" }, row.ends[1])];
  return h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: "range" }),
    row.band ? h("i", { class: "band", style: { left: at(row.band[0]), width: at(Math.max(row.band[1] - row.band[0], 0.004)) } }) : null,
    row.dots.map(([place, rank]) => h("i", { class: "dot", style: { left: at(place), "--rank": (0.15 + 0.85 * rank ** 2).toFixed(2) } })),
    row.default_at === null ? null : h("i", { class: "tick", style: { left: at(row.default_at) } }), h("i", { class: "chosen", style: { left: at(row.at) } }), ends);
}

function recipes(found, data) {
  const rounded = Object.fromEntries(Object.entries(found.params).map(([key, value]) => [key, typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value]));
  const words = Object.entries(rounded).map(([key, value]) => `${key}=${value}`).join(" ");
  const texts = { "As JSON": JSON.stringify(rounded), "Again": `automl enqueue ${data.name} ${words}`, ...(found.recipe ? { "As YAML": found.recipe } : {}) };
  return h("details", {}, h("summary", {}, "This configuration to copy"), Object.entries(texts).map(([title, text]) => [h("h3", {}, title), copy(text)]));
}

function nexts(found, data) {
  if (!found.next.length) return null;
  return h("div", { class: "nexts" }, h("h3", {}, "What to try next"), h("div", { class: "cards3" }, found.next.map((one) =>
    h("div", { class: "card" }, h("b", {}, one.title), h("p", {}, one.odds), h("p", { class: "small soft" }, Object.entries(one.params).map(([key, value]) => `${key} ${shown(value)}`).join(", ")),
      inside ? copy(one.line) : h("button", { type: "button", onclick: () => act(data.name, "enqueue", { params: one.params }) }, "Enqueue", hidden(` ${one.title}`))))));
}
