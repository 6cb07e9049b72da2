// The course of a sweep: the value of each trial and the best so far.
import { Chart, robust } from "./chart.js";
import { h, section } from "./dom.js";
import { metric, number } from "./format.js";
import { choice } from "./parts.js";

const STYLES = { completed: ["dot", "var(--c-completed)"], "stopped early": ["open", "var(--c-stopped)"], infeasible: ["cross", "var(--c-paused)"], failed: ["cross", "var(--c-failed)"] };

export function progressView(rows, open) {
  const chart = new Chart(300);
  const goals = h("h3", {});
  let [x, data] = ["trials", null];
  const switches = h("div", { class: "bar" }, choice("Progress by", { trials: "by trials", seconds: "by time" }, x, (value) => { x = value; draw(); }));
  const node = section("Progress", { class: "panel progressed" }, switches, goals, chart.node);

  function draw() {
    const goal = data.goals[0];
    const ended = rows.rows.filter((row) => typeof rows.cell(row, "ended") === "number");
    ended.sort((a, b) => rows.cell(a, "ended") - rows.cell(b, "ended") || a[0] - b[0]);
    const series = { completed: [], "stopped early": [], infeasible: [], failed: [] };
    const best = [];
    ended.forEach((row, i) => {
      const at = x === "trials" ? i + 1 : rows.cell(row, "ended");
      const value = rows.value(row);
      const state = rows.cell(row, "state");
      if (typeof value !== "number") {  // one that was stopped before its first report has no place
        if (state in series) series[state].push([at, null, row]);
        return;
      }
      series[state === "stopped" ? "stopped early" : "completed"].push([at, value, row]);
      const last = best[best.length - 1];
      if (!last || (goal.maximize ? value > last[1] : value < last[1])) best.push([at, value, row]);
    });
    node.hidden = !ended.length || !best.length;
    if (node.hidden) return;
    const values = series.completed.map(([, value]) => value);
    const first = data.first && typeof data.first.values[0] === "number" ? data.first.values[0] : null;
    const range = robust(values, goal.maximize ? -1 : 1);
    const bad = goal.maximize ? range[0] : range[1];
    for (const point of [...series.infeasible, ...series.failed]) point[1] = bad;
    const lines = first === null ? [] : [[first, data.has_default ? "default" : "trial 0"]];
    goals.textContent = `${goal.metric}: ${goal.maximize ? "higher" : "lower"} is better`;
    chart.set({
      label: `${goal.metric} of each trial and the best so far`,
      x: { label: x === "trials" ? "trials that ended" : "time since the sweep began", range: [x === "trials" ? 1 : rows.cell(ended[0], "ended"), Math.max(x === "trials" ? ended.length : data.seconds, 2)], format: x === "trials" ? number : duration },
      y: { range, lines, format: (value) => metric(goal.metric, value) },
      series: [...Object.entries(series).map(([name, points]) => ({ kind: "points", name, points, shape: STYLES[name][0], color: STYLES[name][1], size: values.length > 2000 ? 4 : 7 })),
        { kind: "step", name: "best single run so far", points: best, color: "var(--accent)", last: metric(goal.metric, best[best.length - 1][1]) }],
      tip: ([, , row]) => rows.tip(row),
      open: ([, , row]) => open(row[0]),
    });
  }

  return { node, set(now) { data = now; draw(); } };
}
