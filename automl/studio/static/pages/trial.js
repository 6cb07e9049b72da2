// One trial: its configuration, curves, log, attempts, memory and files.
import { trialButtons } from "../actions.js";
import { download, get, path } from "../api.js";
import { Chart } from "../chart.js";
import { configuration } from "../configuration.js";
import { h, hidden, section, show } from "../dom.js";
import { change, count, date, duration, durationMark, memory, metric, number, words } from "../format.js";
import { choice, empty, facts, pill, sweepNav } from "../parts.js";
import { robust } from "../scales.js";
import { logView } from "./log.js";

const MAX_CURVES = 8;

export async function trialPage(frame, name, text) {
  const n = Number(text);
  frame.title(`Trial ${n} of ${name}`, ["Sweeps", "/"], [name, path(name)], ["Trials", path(name, "trials")], [`Trial ${n}`, null]);
  const address = `/api${path(name, "trials", n)}`;
  let [trial, sweep] = await Promise.all([get(address), get(`/api${path(name)}`)]);
  let x = "steps";
  const place = Object.fromEntries(["head", "acts", "config", "attempts", "memory", "files", "error"].map((key) => [key, h("div", {})]));
  const charts = new Map();
  const curves = h("div", { class: "curves" });
  const few = h("p", { class: "soft" });
  const curved = section("Curves", { class: "panel" }, choice("Curves by", { steps: "by step", seconds: "by time" }, x, (value) => { x = value; drawCurves(); }), few, curves);
  const log = logView(name, n);

  function drawCurves() {
    const goals = sweep.goals.map((goal) => goal.metric);
    const names = Object.keys(trial.curves).sort((a, b) => goals.includes(b) - goals.includes(a));
    few.textContent = !names.length ? "This trial has not reported anything." : names.length > MAX_CURVES ? `The first ${MAX_CURVES} of ${names.length} metrics.` : "";
    few.hidden = !few.textContent;
    for (const one of names.slice(0, MAX_CURVES)) {
      const found = trial.curves[one];
      if (!charts.has(one)) {
        const chart = new Chart(190);
        charts.set(one, chart);
        curves.append(h("div", {}, h("h3", {}, one), chart.node));
      }
      const points = found[x].map((at, i) => [at, found.values[i], i]);
      const declared = sweep.goals.find((goal) => goal.metric === one);
      const range = robust(found.values.filter((value) => typeof value === "number"), declared?.maximize ? -1 : 1);
      charts.get(one).set({
        label: `${one} by ${x === "steps" ? "step" : "training time"}`,
        x: { label: x === "steps" ? "step" : "training time", range: [Math.min(...found[x]), Math.max(...found[x])], format: x === "steps" ? number : durationMark },
        y: { range, log: range[0] > 0 && range[1] / range[0] > 50, format: (value) => metric(one, value) },
        series: [{ kind: "line", points, color: "var(--accent)", tips: true }],
        tip: ([, value, i]) => [metric(one, value), `step ${found.steps[i]}`, duration(found.seconds[i]), found.attempts[i] > 1 ? `attempt ${found.attempts[i]}` : ""].filter(Boolean),
      });
    }
  }

  function draw() {
    show(place.head, [trial.state, trial.values, trial.failure, trial.message, trial.seconds, trial.source, sweep.num, sweep.best?.number], () => head(trial, sweep, name));
    show(place.acts, [trial.state], () => h("div", { class: "acts" }, trialButtons(name, trial)));
    show(place.error, [trial.traceback], () => trial.traceback && section("Exception", { class: "panel bad" }, h("pre", { tabindex: "0" }, trial.traceback)));
    show(place.config, [trial.params, sweep.best, sweep.first], () => config(trial, sweep, name));
    show(place.attempts, [trial.attempts, trial.events], () => history(trial));
    show(place.memory, [trial.memory_by_module_bytes, trial.estimated_memory_bytes, trial.peak_memory_bytes], () => memories(trial));
    show(place.files, trial.files, (files) => artifacts(files));
    log.set(trial.logs, trial.attempts, trial.state === "running");
    drawCurves();
  }

  function artifacts(files) {
    const kept = files.filter((one) => !one.path.startsWith("logs/"));
    return kept.length ? section("Files", { class: "panel" }, h("ul", { class: "files" }, kept.map((one) => h("li", {},
      h("button", { type: "button", class: "link", onclick: () => download(`${address}/files/${one.path.split("/").map(encodeURIComponent).join("/")}`, one.path.split("/").pop()) }, one.path), h("span", { class: "soft number" }, memory(one.bytes)))))) : null;
  }

  let asking = false;
  let again = false;
  async function update(message) {
    if (!message.all && !message.changed?.includes(name)) return;
    if (asking) { again = true; return; }
    asking = true;
    try {
      [trial, sweep] = await Promise.all([get(address), get(`/api${path(name)}`)]);
      draw();
    } catch { /* the banner says it; the next event asks again */ } finally {
      asking = false;
      if (again) { again = false; setTimeout(() => update({ all: true }), 500); }
    }
  }

  const around = h("p", { class: "around" }, n > 0 ? h("a", { href: path(name, "trials", n - 1) }, `← Trial ${n - 1}`) : null, h("a", { href: path(name, "trials", n + 1) }, `Trial ${n + 1} →`));
  const content = h("div", { class: "sided" }, sweepNav(name, "Trials"), h("div", { class: "page" }, place.head, place.acts, h("div", { class: "columns" },
    h("div", { class: "column" }, place.error, place.config, place.memory, place.attempts, place.files), h("div", { class: "column" }, curved, log.node)), around));
  draw();
  return { content: [content], update, close: () => log.stop() };
}

function head(trial, sweep, name) {
  const values = sweep.goals.map((goal, i) => (typeof trial.values[i] === "number" ? [goal.metric, trial.values[i], trial.values_from[i]] : null)).filter(Boolean);
  const best = sweep.best?.number === trial.number;
  return [h("div", { class: "title" }, h("h1", {}, `Trial ${trial.number}`), pill(trial.violation ? "infeasible" : trial.state), best ? h("span", { class: "star" }, "★ the best") : null),
    h("p", { class: "headline" }, values.length ? values.map(([key, value, from]) => `${key} ${metric(key, value)} (${from})`).join(", ") : trial.failure ? `Failed: ${words(trial.failure)}` : trial.violation || (trial.state === "stopped" ? "No value" : "No result yet")),
    trial.message ? h("p", { class: trial.failure ? "wrong" : "soft" }, trial.message) : null,
    facts([["Time", duration(trial.seconds)], ["Peak memory", trial.peak_memory_bytes === null ? "" : memory(trial.peak_memory_bytes)], ["Attempts", String(trial.attempts)], ["Reports", String(trial.num_reports)],
      ["Proposed by", trial.replicate_of === null ? trial.source : `${trial.source}: trial ${trial.replicate_of} again`], ["Worker", trial.details.worker || ""], ["Began", trial.started === null ? "" : `${duration(trial.started)} after the sweep`]])];
}

function config(trial, sweep, name) {
  const others = [sweep.first && sweep.first.number !== trial.number ? [sweep.has_default ? "default" : "trial 0", sweep.first] : null,
    sweep.best && sweep.best.number !== trial.number && sweep.best.number !== sweep.first?.number ? ["best", sweep.best] : null].filter(Boolean);
  const keys = [...new Set([...sweep.space.map((one) => one.name), ...Object.keys(trial.params)])].filter((key) => key in trial.params || others.some(([, one]) => key in one.params));
  const cell = (params, key) => (key in params ? configuration.show(params[key]) : "–");
  return section("Configuration", { class: "panel" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The configuration" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Parameter"), h("th", { scope: "col" }, "this trial"), others.map(([title, one]) => h("th", { scope: "col" }, h("a", { href: path(name, "trials", one.number) }, title === "best" ? `best (trial ${one.number})` : title))))),
    h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, h("b", {}, cell(trial.params, key))), others.map(([, one]) => {
      const differs = !configuration.same(one.params[key], trial.params[key]);
      return h("td", { class: differs ? "different" : "equal" }, cell(one.params, key), differs ? hidden(" (differs)") : null);
    })))))));
}

function history(trial) {
  if (!trial.events.length) return null;
  return section("Attempts and events", { class: "panel" }, h("ol", { class: "events" }, trial.events.map((one) => h("li", {}, h("time", { datetime: new Date(one.recorded * 1000).toISOString() }, date(one.recorded)), h("span", {}, one.words, one.message ? h("span", { class: "soft" }, `: ${one.message}`) : null)))));
}

function memories(trial) {
  const measured = trial.peak_memory_bytes;
  const estimated = trial.estimated_memory_bytes ?? trial.metrics.estimated_memory_bytes ?? null;
  const modules = Object.entries(trial.memory_by_module_bytes || {}).sort((a, b) => b[1] - a[1]);
  if (estimated === null && !modules.length) return null;
  const most = Math.max(measured || 0, estimated || 0, ...modules.map(([, bytes]) => bytes), 1);
  const bar = (title, bytes, kind) => h("li", {}, h("span", {}, title), h("span", { class: "number" }, memory(bytes)), h("i", { class: `bar-part ${kind}`, style: { width: `${(100 * bytes) / most}%` }, "aria-hidden": "true" }));
  const off = estimated && measured ? `The estimate was ${change(estimated, measured)} of what was measured.`.replace("+", "above by ").replace("−", "below by ").replace(" of what", " against what") : "";
  return section("Memory", { class: "panel" }, h("ul", { class: "bars" }, measured ? bar("measured peak", measured, "") : null, estimated ? bar("estimated before it began", estimated, "second") : null), off ? h("p", { class: "soft" }, off) : null,
    modules.length ? [h("h3", {}, "By module"), h("ul", { class: "bars" }, modules.slice(0, 12).map(([title, bytes]) => bar(title, bytes, "third")))] : null);
}
