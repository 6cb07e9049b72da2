// What people can do on the pages.
import { Refused, path, post, remembered } from "./api.js";
import { h, section } from "./dom.js";
import { date, duration } from "./format.js";
import { copy } from "./parts.js";

const NAME = "automl-name";
const DURATION = /^(\d+(\.\d+)?\s*[dhms]\s*)+$/;

// Do something to a sweep, and say what happened; true if it was done.
export async function act(sweep, what, body = {}) {
  const by = remembered(NAME)?.trim();
  try {
    const found = await post(`/api${path(sweep)}/${what}`, by ? { by, ...body } : body);
    say(found.done ? `${found.done.startsWith(sweep) ? "" : found.done[0].toUpperCase()}${found.done.slice(found.done.startsWith(sweep) ? 0 : 1)}.` : "Saved.");
    return true;
  } catch (error) {
    say(error instanceof Refused ? `Refused: ${error.message}` : "The studio cannot be reached.", true);
    return false;
  }
}

let timer = null;
function say(text, wrong = false) {
  const place = document.getElementById("acted");
  place.replaceChildren(h("p", { class: wrong ? "wrong" : null }, text), h("button", { type: "button", onclick: () => place.replaceChildren() }, "Close"));
  clearTimeout(timer);
  if (!wrong) timer = setTimeout(() => place.replaceChildren(), 8000);
}

// A button that acts; while it does, it cannot be pressed again.
export function button(title, action, attributes = {}) {
  const made = h("button", { type: "button", ...attributes, onclick: async () => {
    made.disabled = true;
    try { await action(made); } finally { made.disabled = false; }
  } }, title);
  return made;
}

// A button that asks once more before it acts.
export function sureButton(title, sure, action) {
  const place = h("span", { class: "sure" });
  const first = h("button", { type: "button", onclick: () => { place.replaceChildren(yes, no); no.focus(); } }, title);
  const back = () => { place.replaceChildren(first); first.focus(); };
  const yes = button(sure, async () => { await action(); back(); }, { class: "danger" });
  const no = h("button", { type: "button", onclick: back }, "No");
  place.append(first);
  return place;
}

// What can be done to a trial in its state.
export function trialButtons(sweep, trial) {
  const to = (verb) => () => act(sweep, verb, { trial: trial.number });
  const open = ["waiting", "running", "paused", "interrupted"].includes(trial.state);
  return [
    trial.state === "running" ? button("Pause", to("pause")) : null,
    open ? sureButton("Stop", `Stop trial ${trial.number}`, to("stop")) : button("Try again", to("enqueue")),
  ];
}

// Everything that can be done to a sweep.
export function steering(data) {
  const name = data.name;
  const lines = data.lines_to_type;
  const who = h("input", { type: "text", id: "act-name", autocomplete: "name", maxlength: 200, placeholder: "the user of the studio", oninput: () => remembered(NAME, who.value) });
  who.value = remembered(NAME) || "";
  const running = data.state === "running";
  return section("Steer", { class: "panel steer" },
    h("div", { class: "field" }, h("label", { for: "act-name" }, "You are"), who),
    budget(name, data.budget),
    limits(name, data),
    h("div", { class: "field" }, running ? sureButton("Stop the sweep", "Stop it, results count", () => act(name, "stop")) : null),
    h("details", {}, h("summary", {}, "In a shell"), running ? null : [h("p", { class: "soft" }, "Go on with the sweep:"), copy(lines.resume)],
      h("p", { class: "soft" }, "A range that is wider than the space of the sweep needs a resume:"), copy(lines.widen)));
}

function budget(name, now) {
  const known = { trials: String(now.trials ?? ""), time: now.time ? duration(now.time).replaceAll(" ", "") : "" };
  const trials = h("input", { type: "number", id: "act-trials", min: 1, step: 1, value: known.trials });
  const time = h("input", { type: "text", id: "act-time", placeholder: "such as 1h30m", autocomplete: "off", value: known.time });
  const told = h("p", { class: "wrong", role: "alert" });
  return h("form", { class: "field", onsubmit: async (event) => {
    event.preventDefault();
    const changes = {};
    if (trials.value !== known.trials) changes["budget.trials"] = trials.value ? Number(trials.value) : null;
    if (time.value.trim() !== known.time) changes["budget.time"] = time.value.trim() || null;
    told.textContent = !Object.keys(changes).length ? "Change the trials or the time first." : changes["budget.time"] && !DURATION.test(changes["budget.time"]) ? "A time is like 90s, 10m or 1h30m." : "";
    if (!told.textContent) await act(name, "set", { changes });
  } }, h("label", { for: "act-trials" }, "Trials"), trials, h("label", { for: "act-time" }, "Time"), time, h("button", { type: "submit" }, "Set the budget"), told);
}

function limits(name, data) {
  const tuned = data.space.filter((one) => (one.choices ? one.choices.length > 1 : one.low < one.high));
  const values = h("span", { class: "limit-values" });
  const select = h("select", { id: "act-parameter", onchange: draw }, tuned.map((one, i) => h("option", { value: i }, one.name)));
  const told = h("p", { class: "wrong", role: "alert" });
  let read = () => [];
  function draw() {
    const one = tuned[Number(select.value)];
    if (one.choices) {
      const boxes = one.choices.map((value) => h("label", {}, h("input", { type: "checkbox", checked: true }), value === null ? "none" : String(value)));
      values.replaceChildren(...boxes);
      read = () => one.choices.filter((_, i) => boxes[i].firstChild.checked);
    } else {
      const ends = ["low", "high"].map((end) => h("input", { type: "number", step: "any", value: one[end], "aria-label": `${end === "low" ? "Smallest" : "Largest"} ${one.name}` }));
      values.replaceChildren(ends[0], " to ", ends[1]);
      read = () => ends.map((end) => end.valueAsNumber);
    }
  }
  if (tuned.length) draw();
  const form = tuned.length ? h("form", { class: "field", onsubmit: (event) => {
    event.preventDefault();
    const limit = read();
    told.textContent = limit.some((value) => Number.isNaN(value)) ? "Give both ends." : limit.length === 0 ? "Leave at least one choice." : "";
    if (!told.textContent) act(name, "set", { changes: { [`space.${tuned[Number(select.value)].name}`]: limit } });
  } }, h("label", { for: "act-parameter" }, "Try only"), select, values, h("button", { type: "submit" }, "Limit"), told) : null;
  const held = Object.entries(data.limits);
  return [form, held.length ? h("ul", { class: "held" }, held.map(([key, text]) => h("li", {}, `${key}: ${text} `, button("Release", () => act(name, "set", { changes: { [`space.${key}`]: "auto" } }), { "aria-label": `Release ${key}` })))) : null];
}

// What people have done, the newest first.
export function commandHistory(commands) {
  return section("What people did", { class: "panel" }, h("ol", { class: "events" }, commands.map((one) => h("li", {}, h("time", { datetime: new Date(one.when * 1000).toISOString() }, date(one.when)),
    h("span", {}, h("b", {}, one.by || "somebody"), ": ", one.words, one.trial === null ? "" : ` (trial ${one.trial})`)))));
}
