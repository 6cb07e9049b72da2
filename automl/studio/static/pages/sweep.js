// One sweep: its result, its course, its workers, what failed.
import { commandHistory, steering } from "../actions.js";
import { get, path } from "../api.js";
import { Chart } from "../chart.js";
import { configuration } from "../configuration.js";
import { h, hidden, section, show } from "../dom.js";
import { change, count, date, duration, durationMark, metric, number, words } from "../format.js";
import { STATES, choice, empty, facts, pill, progress, shell, spark, sweepNav } from "../parts.js";
import { robust } from "../scales.js";
import { TrialsTable } from "../trials_table.js";
import { paretoCharts } from "./pareto.js";
import { timeline } from "./timeline.js";

const ENDED = ["completed", "infeasible", "stopped", "failed"];
const COLOURS = { usual: "var(--c-completed)", stopped: "var(--c-stopped)", infeasible: "var(--c-paused)", failed: "var(--c-failed)", best: "var(--accent)" };

export async function sweepPage(frame, name) {
  frame.title(name, ["Sweeps", "/"], [name, null]);
  const table = new TrialsTable(name);  // empty until the stream's first event, so that the result shows before it
  let data = await get(`/api${path(name)}`);
  let x = "trials";
  const chart = new Chart(300);
  const pareto = paretoCharts((row) => frame.go(path(name, "trials", row[0])));
  const workers = timeline((row) => frame.go(path(name, "trials", row[0])));
  const place = Object.fromEntries(["head", "result", "warnings", "running", "failures", "steered", "done", "about"].map((key) => [key, h("div", { class: key })]));
  const progressed = section("Progress", { class: "panel progressed" }, choice("Progress by", { trials: "by trials", seconds: "by time" }, x, (value) => { x = value; drawChart(); }), chart.node);
  const members = h("ul", { class: "members" });
  const frontier = section("Pareto front", { class: "panel frontier" }, pareto.node, members);
  const busy = section("Workers", { class: "panel" }, workers.node);

  function drawChart() {
    const goal = data.goals[0];
    const rows = table.rows.filter((row) => table.cell(row, "ended") !== null && table.cell(row, "ended") !== undefined);
    rows.sort((a, b) => table.cell(a, "ended") - table.cell(b, "ended") || a[0] - b[0]);
    const series = { usual: [], stopped: [], infeasible: [], failed: [] };
    const best = [];
    rows.forEach((row, i) => {
      const at = x === "trials" ? i + 1 : table.cell(row, "ended");
      const value = table.value(row);
      const state = table.cell(row, "state");
      if (typeof value !== "number") {  // one that was stopped before its first report has no place
        if (state === "infeasible" || state === "failed") series[state].push([at, null, row]);
        return;
      }
      series[state === "stopped" ? "stopped" : "usual"].push([at, value, row]);
      const last = best[best.length - 1];
      if (!last || (goal.maximize ? value > last[1] : value < last[1])) best.push([at, value, row]);
    });
    const values = [...series.usual, ...series.stopped].map(([, value]) => value);
    const range = robust(values, goal.maximize ? -1 : 1);
    const floor = goal.maximize ? range[0] : range[1];
    for (const point of [...series.infeasible, ...series.failed]) point[1] = floor;
    const spread = range[0] > 0 && range[1] / range[0] > 50;
    progressed.hidden = !ENDED.some((state) => data.states[state]);
    chart.set({
      label: `${goal.metric} of each trial and the best so far`,
      x: { label: x === "trials" ? "trials that ended" : "time since the sweep began", range: [x === "trials" ? 1 : 0, Math.max(x === "trials" ? rows.length : data.seconds, 2)], format: x === "trials" ? number : durationMark },
      y: { range, log: spread, format: (value) => metric(goal.metric, value) },
      series: [
        { kind: "points", name: "completed", points: series.usual, color: COLOURS.usual, size: values.length > 2000 ? 4 : 7 },
        { kind: "points", name: series.stopped.length ? "stopped early" : "", points: series.stopped, color: COLOURS.stopped, shape: "down" },
        { kind: "points", name: series.infeasible.length ? "infeasible" : "", points: series.infeasible, color: COLOURS.infeasible, shape: "cross" },
        { kind: "points", name: series.failed.length ? "failed" : "", points: series.failed, color: COLOURS.failed, shape: "cross" },
        { kind: "step", name: "best so far", points: best, color: COLOURS.best },
      ],
      tip: ([, , row]) => table.tip(row),
      open: ([, , row]) => frame.go(path(name, "trials", row[0])),
    });
  }

  function draw() {
    show(place.head, [data.state, data.states, data.share, data.lines, data.workers, data.host, data.budget, Math.round(data.seconds)], () => head(data));
    show(place.result, [data.headline, data.best, data.first, data.pareto, data.state], () => result(data));
    show(place.warnings, data.warnings, (warnings) => warnings.length && section("Warnings", { class: "panel warn" }, h("ul", {}, warnings.map((one) => h("li", {}, one)))));
    show(place.running, [data.running, data.state], () => data.running.length && running(data));
    show(place.failures, data.failures, (found) => found.length && failures(data));
    show(place.about, [data.space, data.links, data.budget], () => about(data));
    show(place.steered, [data.state, data.budget, data.space, data.limits, Boolean(data.best)], () => steering(data));
    show(place.done, data.commands, (commands) => commands.length && commandHistory(commands));
    frontier.hidden = !table.rows.length || data.goals.length < 2 || !data.pareto.length;
    pareto.set(table, data);
    show(members, [data.pareto, table.rows.length], () => data.pareto.map((n) => table.rows[n] && h("li", {}, h("a", { href: path(name, "trials", n) }, `Trial ${n}`), `: ${data.goals.map((goal, i) => `${goal.metric} ${metric(goal.metric, table.value(table.rows[n], i))}`).join(", ")}`)));
    workers.set(table, data);
    busy.hidden = !table.rows.length;
    drawChart();
  }

  let asking = false;
  let again = false;
  async function update(message) {
    if (!message.all && !message.changed?.includes(name)) return;
    if (message.page?.name === name) {
      data = message.page;
      table.take(message.table);
      draw();
      return;
    }
    if (asking) { again = true; return; }
    asking = true;
    try {
      [data] = await Promise.all([get(`/api${path(name)}`), table.refresh()]);
      draw();
    } catch { /* the banner says it; the next event asks again */ } finally {
      asking = false;
      if (again) { again = false; setTimeout(() => update({ all: true }), 300); }
    }
  }

  const content = h("div", { class: "sided" }, sweepNav(name, "Overview"), h("div", { class: "page" }, place.head, h("div", { class: "columns" },
    h("div", { class: "column" }, place.result, place.warnings, place.running, place.failures, place.steered, place.done, place.about),
    h("div", { class: "column" }, progressed, busy, frontier))));
  draw();
  return { content: [content], update, follows: { name, table } };
}

function head(data) {
  const states = Object.entries(data.states);
  const dead = data.state === "interrupted" && Object.keys(data.states).length
    ? h("div", { class: "note" }, h("p", {}, h("b", {}, "No controller runs. "), "The sweep was interrupted; everything so far is recorded. To continue it:"), shell(data.lines_to_type.resume)) : null;
  return [h("div", { class: "title" }, h("h1", {}, data.name), pill(data.state)),
    h("p", { class: "soft" }, data.lines[0]), data.state === "running" ? h("p", { class: "soft" }, data.lines[1], data.host ? `, machine ${data.host}` : "") : null,
    progress(data.states, data.share),
    h("p", { class: "legend" }, STATES.filter((one) => data.states[one]).map((one) => h("span", {}, pill(one), ` ${data.states[one]}`))), dead];
}

function result(data) {
  if (!data.best) {
    const failed = data.states.failed || 0;
    const all = Object.values(data.states).reduce((a, b) => a + b, 0);
    if (!all) return section("Result", { class: "panel" }, h("p", { class: "headline" }, "No trial has begun yet."), h("p", { class: "soft" }, "The first trial is the default configuration. This page follows the sweep by itself."));
    return section("Result", { class: `panel ${failed && failed === all ? "bad" : ""}` }, h("p", { class: "headline" }, data.headline.split("\n")[0]), data.headline.includes("\n") ? h("pre", {}, data.headline.split("\n").slice(1).join("\n")) : null);
  }
  const { best, first } = data;
  const names = [...new Set([...data.space.map((one) => one.name), ...Object.keys(best.params)])].filter((one) => one in best.params || one in first.params);
  const cells = (trial, key) => (key in trial ? configuration.show(trial[key]) : "–");
  const alone = best.number === first.number;
  const rows = names.map((key) => {
    const differs = !alone && !configuration.same(best.params[key], first.params[key]);
    return h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, key), h("td", {}, cells(best.params, key), differs ? hidden(" (changed)") : null), alone ? null : h("td", {}, cells(first.params, key)), alone ? null : h("td", {}));
  });
  const goals = data.goals.map((goal, i) => {
    const [ours, theirs] = [best.values[i], first.values[i]];
    const share = typeof ours === "number" && typeof theirs === "number" ? change(ours, theirs) : "";
    return h("tr", { class: "goal" }, h("th", { scope: "row" }, goal.metric, h("span", { class: "soft" }, goal.maximize ? " ↑" : " ↓"), hidden(goal.maximize ? " (higher is better)" : " (lower is better)")), h("td", {}, h("b", {}, metric(goal.metric, ours))), alone ? null : h("td", {}, metric(goal.metric, theirs)), alone ? null : h("td", {}, share));
  });
  const other = data.has_default ? "default" : "trial 0";
  return section("Result", { class: "panel" }, h("p", { class: "headline" }, data.headline), data.pareto.length ? h("p", { class: "soft" }, `${count(data.pareto.length, "configuration")} on the Pareto front: no other is better in all goals.`) : null,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The best configuration" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, hidden("Name")), h("th", { scope: "col" }, "best (", h("a", { href: path(data.name, "trials", best.number) }, `trial ${best.number}`), ")"), alone ? null : h("th", { scope: "col" }, h("a", { href: path(data.name, "trials", 0) }, other)), alone ? null : h("th", { scope: "col" }, "change"))),
      h("tbody", {}, goals, rows))));
}

function running(data) {
  const goal = data.goals[0].metric;
  return section("Running now", { class: "panel" }, h("ul", { class: "running" }, data.running.map((one) => h("li", {},
    h("a", { href: path(data.name, "trials", one.number) }, `Trial ${one.number}`),
    h("span", { class: "soft" }, [one.step === null ? "no report yet" : `step ${number(one.step)}`, one.attempt > 1 ? `attempt ${one.attempt}` : ""].filter(Boolean).join(", ")),
    spark(one.values, 120, 26, goal), h("b", {}, one.values.length ? metric(goal, one.values[one.values.length - 1]) : "–")))));
}

function failures(data) {
  const most = Math.max(...data.failures.map((one) => one.count));
  return section("Failures", { class: "panel" }, h("ul", { class: "failures" }, data.failures.map((one) => h("li", {},
    h("a", { href: `${path(data.name, "trials")}?filter=${encodeURIComponent(`failure = ${one.kind}`)}` }, words(one.kind)), h("span", { class: "number" }, one.count),
    h("i", { class: "bar-part", style: { width: `${(100 * one.count) / most}%` }, "aria-hidden": "true" }),
    h("p", { class: "soft" }, h("a", { href: path(data.name, "trials", one.trial) }, `Trial ${one.trial}`), `: ${one.message || "no message"}`)))));
}

function about(data) {
  const budget = data.budget;
  const limits = [budget.trials && count(budget.trials, "trial"), budget.time && duration(budget.time), budget.worker_time && `${duration(budget.worker_time)} of workers`, budget.target !== null && `target ${number(budget.target)}`, budget.until && `until ${budget.until}`].filter(Boolean).join(", ");
  const links = Object.entries(data.links).map(([title, href]) => h("a", { href, target: "_blank", rel: "noreferrer noopener" }, title));
  return section("About", { class: "panel" }, facts([
    ["Goals", data.goals.map((goal) => goal.text).join("; ")], ["Constraints", data.constraints.join("; ")], ["Budget", limits || "no limit"],
    ["Workload", data.workload || "a function or command of your own"], ["Suggester", data.suggester], ["Stopper", data.stopper], ["Seed", String(data.seed)], ["Created", date(data.created)],
    ["Ray", links.length ? h("span", { class: "links" }, links) : null]]),
    h("details", {}, h("summary", {}, `Space: ${count(data.space.length, "parameter")}`), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The space" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, ["Parameter", "Values", "Default", "Only if"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, data.space.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, values(one)), h("td", {}, "default" in one ? configuration.show(one.default) : "–"), h("td", {}, one.when ? Object.entries(one.when).map(([key, list]) => `${key} is ${[list].flat().map((v) => configuration.show(v)).join(" or ")}`).join(", ") : ""))))))));
}

function values(one) {
  return one.choices ? one.choices.map((value) => configuration.show(value)).join(", ") : `${number(one.low)} to ${number(one.high)}${one.log ? ", log" : ""}`;
}
