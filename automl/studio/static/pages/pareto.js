// One scatter for each pair of goals; the corner that is better is marked.
import { Chart } from "../chart.js";
import { h } from "../dom.js";
import { metric } from "../format.js";
import { robust } from "../scales.js";

export function paretoCharts(open, selection = null) {
  const node = h("div", { class: "paretos" });
  const charts = new Map();
  return { node, set };

  function set(table, data) {
    if (data.goals.length < 2) return;
    const front = new Set(data.pareto);
    for (let i = 0; i < data.goals.length; i++) for (let j = i + 1; j < data.goals.length; j++) {
      const [a, b] = [data.goals[i], data.goals[j]];
      if (!charts.has(`${i} ${j}`)) {
        const chart = new Chart(280, selection);
        charts.set(`${i} ${j}`, chart);
        node.append(h("div", {}, h("h3", {}, `${a.metric} and ${b.metric}`), chart.node));
      }
      const points = table.rows.map((row) => [table.value(row, i), table.value(row, j), row]).filter(([x, y]) => typeof x === "number" && typeof y === "number");
      const axis = (goal, k) => {
        const range = robust(points.map((point) => point[k]), goal.maximize ? -1 : 1);
        return { range, log: range[0] > 0 && range[1] / range[0] > 20, format: (value) => metric(goal.metric, value) };
      };
      charts.get(`${i} ${j}`).set({
        label: `${b.metric} against ${a.metric} of every trial; ${front.size} trials are on the Pareto front`,
        x: { label: `${a.metric} ${a.maximize ? "(higher is better →)" : "(← lower is better)"}`, ...axis(a, 0) },
        y: { label: `${b.metric} ${b.maximize ? "(higher is better ↑)" : "(lower is better ↓)"}`, ...axis(b, 1) },
        series: [
          { kind: "points", name: "others", points: points.filter(([, , row]) => !front.has(row[0])), color: "var(--c-waiting)", size: 5 },
          { kind: "points", name: "Pareto front", points: points.filter(([, , row]) => front.has(row[0])), color: "var(--accent)", size: 9 },
        ],
        corner: { right: a.maximize, up: b.maximize },
        tip: ([, , row]) => table.tip(row),
        trial: ([, , row]) => row[0],
        open: ([, , row]) => open(row),
      });
    }
  }
}
