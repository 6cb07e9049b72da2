// 2 to 6 sweeps, or trials: courses and curves over each other, parameters side by side.
import { get, path } from "../api.js";
import { Chart } from "../chart.js";
import { configuration } from "../configuration.js";
import { h, hidden, section } from "../dom.js";
import { count, duration, durationMark, metric, number } from "../format.js";
import { choice, empty, pill } from "../parts.js";
import { robust } from "../scales.js";
import { TrialsTable } from "../trials_table.js";

const COLOURS = ["var(--s1)", "var(--s2)", "var(--s3)", "var(--s4)", "var(--s5)", "var(--s6)"];

export async function comparePage(frame) {
  const query = new URLSearchParams(location.search);
  const trials = query.getAll("trials").map((one) => [one.slice(0, one.lastIndexOf(":")), Number(one.slice(one.lastIndexOf(":") + 1))]);
  frame.title("Compare", ["Sweeps", "/"], ["Compare", null]);
  return trials.length ? compareTrials(frame, trials.slice(0, 6)) : compareSweeps(frame, [...new Set(query.getAll("sweeps"))].slice(0, 6));
}

async function compareSweeps(frame, names) {
  const { sweeps } = await get("/api/overview");
  const picker = h("select", { id: "add" }, h("option", { value: "" }, "Add a sweep"), sweeps.map((one) => one.name).filter((one) => !names.includes(one)).reverse().map((one) => h("option", {}, one)));
  picker.addEventListener("change", () => picker.value && go([...names, picker.value]));
  const go = (now) => frame.go(`/compare?${now.map((one) => `sweeps=${encodeURIComponent(one)}`).join("&")}`);
  const chips = h("div", { class: "bar" }, names.map((one, i) => h("span", { class: "chip" }, h("i", { class: "key line", style: { "--colour": COLOURS[i] }, "aria-hidden": "true" }), h("a", { href: path(one) }, one), h("button", { type: "button", "aria-label": `Remove ${one}`, onclick: () => go(names.filter((other) => other !== one)) }, "×"))),
    names.length < 6 ? h("label", { for: "add" }, hidden("Add a sweep"), picker) : null);
  const title = [h("h1", {}, "Compare sweeps"), chips];
  if (names.length < 2) return { content: [...title, empty("Choose 2 to 6 sweeps", h("p", {}, "Add another sweep to see both courses in one figure."))] };
  const found = await Promise.all(names.map(async (name) => {
    const table = new TrialsTable(name);
    const [data] = await Promise.all([get(`/api${path(name)}`), table.refresh()]);
    return { name, table, data };
  }));
  const goal = found[0].data.goals[0];
  const alike = found.filter((one) => one.data.goals.some((other) => other.metric === goal.metric && other.maximize === goal.maximize));
  let x = "trials";
  const chart = new Chart(340);

  function draw() {
    const series = found.map((one, i) => {
      if (!alike.includes(one)) return null;
      const index = one.data.goals.findIndex((other) => other.metric === goal.metric);
      const rows = one.table.rows.filter((row) => typeof one.table.cell(row, "ended") === "number").sort((a, b) => one.table.cell(a, "ended") - one.table.cell(b, "ended"));
      const points = [];
      rows.forEach((row, k) => {
        const value = one.table.value(row, index);
        const last = points[points.length - 1];
        const at = x === "trials" ? k + 1 : one.table.cell(row, "ended");
        if (typeof value === "number" && (!last || (goal.maximize ? value > last[1] : value < last[1]))) points.push([at, value, row]);
      });
      const end = x === "trials" ? rows.length : one.data.seconds;
      if (points.length) points.push([end, points[points.length - 1][1], points[points.length - 1][2]]);
      return { kind: "line", points: stairs(points), name: one.name, color: COLOURS[i], tips: true, table: one.table, size: 2.5 };
    }).filter(Boolean);
    const all = series.flatMap((one) => one.points);
    chart.set({
      label: `Best ${goal.metric} so far of ${series.length} sweeps`,
      x: { label: x === "trials" ? "trials that ended" : "time since the sweep began", range: [0, Math.max(...all.map(([at]) => at), 1)], format: x === "trials" ? number : durationMark },
      y: { range: robust(all.map(([, value]) => value), goal.maximize ? -1 : 1), format: (value) => metric(goal.metric, value) },
      series,
      tip: ([at, value, row], one) => [one.name, `${goal.metric} ${metric(goal.metric, value)}`, `trial ${row[0]}`],
    });
  }

  const results = found.map((one) => one.data.best);
  const keys = [...new Set(found.flatMap((one) => one.data.space.map((parameter) => parameter.name)))];
  const left = found.length - alike.length;
  draw();
  return { content: [...title, h("div", { class: "stack" },
    section("Progress", { class: "panel" }, choice("Progress by", { trials: "by trials", seconds: "by time" }, x, (value) => { x = value; draw(); }), left ? h("p", { class: "soft" }, `${count(left, "sweep")} with another goal than '${goal.text}' ${left === 1 ? "is" : "are"} left out of the figure.`) : null, chart.node),
    section("Results", { class: "panel" }, sideBySide("Results of the sweeps", found.map((one) => h("a", { href: path(one.name) }, one.name)), [
      ["state", found.map((one) => pill(one.data.state))],
      [`best ${goal.metric}`, found.map((one, i) => (results[i] ? h("b", {}, metric(goal.metric, results[i].values[0])) : one.data.states.infeasible ? "none feasible" : "–"))],
      ["trials", found.map((one) => number(one.table.rows.length))], ["time", found.map((one) => duration(one.data.seconds))],
      ["suggester", found.map((one) => one.data.suggester)], ["stopper", found.map((one) => one.data.stopper)], ["seed", found.map((one) => String(one.data.seed))]])),
    section("Best configurations", { class: "panel" }, sideBySide("Best configurations of the sweeps", found.map((one, i) => (results[i] ? h("a", { href: path(one.name, "trials", results[i].number) }, `${one.name}, trial ${results[i].number}`) : one.name)), keys.map((key) => [key, results.map((one) => (one && key in one.params ? configuration.show(one.params[key]) : "–"))]))))] };
}

async function compareTrials(frame, chosen) {
  const names = [...new Set(chosen.map(([name]) => name))];
  const sweeps = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await get(`/api${path(name)}`)])));
  const trials = await Promise.all(chosen.map(async ([name, n]) => ({ name, n, trial: await get(`/api${path(name, "trials", n)}`), title: names.length > 1 ? `${name} ${n}` : `Trial ${n}` })));
  let x = "steps";
  const metrics = [...new Set(trials.flatMap((one) => Object.keys(one.trial.curves)))];
  const goals = sweeps[names[0]].goals.map((goal) => goal.metric);
  metrics.sort((a, b) => goals.includes(b) - goals.includes(a));
  const charts = metrics.slice(0, 6).map((one) => [one, new Chart(240)]);

  function draw() {
    for (const [one, chart] of charts) {
      const series = trials.map(({ trial, title }, i) => {
        const curve = trial.curves[one];
        return curve && { kind: "line", name: title, color: COLOURS[i], tips: true, points: curve[x].map((at, k) => [at, curve.values[k], k]) };
      }).filter(Boolean);
      const points = series.flatMap((each) => each.points);
      const goal = sweeps[names[0]].goals.find((each) => each.metric === one);
      chart.set({ label: `${one} of ${series.length} trials`, x: { label: x === "steps" ? "step" : "training time", range: [Math.min(...points.map(([at]) => at)), Math.max(...points.map(([at]) => at))], format: x === "steps" ? number : durationMark },
        y: { range: robust(points.map(([, value]) => value), goal?.maximize ? -1 : 1), format: (value) => metric(one, value) }, series, tip: ([at, value], each) => [each.name, `${one} ${metric(one, value)}`] });
    }
  }

  const keys = [...new Set(trials.flatMap(({ trial }) => Object.keys(trial.params)))];
  const measured = [...new Set(trials.flatMap(({ trial }) => Object.keys(trial.metrics)))].filter((one) => !goals.includes(one));
  draw();
  return { content: [h("h1", {}, "Compare trials"), h("div", { class: "stack" },
    section("Curves", { class: "panel" }, charts.length ? choice("Curves by", { steps: "by step", seconds: "by time" }, x, (value) => { x = value; draw(); }) : h("p", { class: "soft" }, "These trials have reported nothing."), h("div", { class: "curves" }, charts.map(([one, chart]) => h("div", {}, h("h3", {}, one), chart.node)))),
    section("Side by side", { class: "panel" }, sideBySide("Configurations and results of the trials", trials.map(({ name, n, title }, i) => [h("i", { class: "key line", style: { "--colour": COLOURS[i] }, "aria-hidden": "true" }), h("a", { href: path(name, "trials", n) }, title)]), [
      ["state", trials.map(({ trial }) => pill(trial.failure ? "failed" : trial.violation ? "infeasible" : trial.state))], ...goals.map((one, i) => [one, trials.map(({ trial }) => h("b", {}, metric(one, trial.values[i])))]),
      ...keys.map((key) => [key, trials.map(({ trial }) => (key in trial.params ? configuration.show(trial.params[key]) : "–"))]), ["time", trials.map(({ trial }) => duration(trial.seconds))], ...measured.slice(0, 20).map((one) => [one, trials.map(({ trial }) => (one in trial.metrics ? metric(one, trial.metrics[one]) : "–"))])])))] };
}

// The corners of the best so far.
function stairs(points) {
  return points.flatMap((point, i) => (i ? [[point[0], points[i - 1][1], points[i - 1][2]], point] : [point]));
}

// Rows in which not all cells are alike are marked.
function sideBySide(label, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, hidden("Name")), heads.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map(([name, cells]) => {
      const texts = new Set(cells.map((cell) => (cell instanceof Node ? cell.textContent : cell)));
      return h("tr", { class: texts.size > 1 ? "differs" : null }, h("th", { scope: "row" }, name), cells.map((cell) => h("td", {}, cell)));
    }))));
}
