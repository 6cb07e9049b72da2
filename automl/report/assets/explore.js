// To explore: the front of several goals, any two parameters, and parallel coordinates of one branch.
import { Chart, robust } from "./chart.js";
import { h, s, section, show } from "./dom.js";
import { metric, number } from "./format.js";
import { shown } from "./rows.js";

const BINS = 5;  // of colours, the worst first
const HEIGHT = 320;
const TOP = 60;
const BOTTOM = 24;

// The front of two goals or more: a scatter of each pair with the first, and the configurations on it.
export function frontView(rows, open) {
  const charts = new Map();
  const figures = h("div", { class: "paretos" });
  const list = h("div", {});
  const node = section("The front", { class: "panel frontier" }, h("p", { class: "soft" }, "On the front no other trial is better in all goals. The knee is nearest to the best of each."), list, figures);

  function set(data) {
    node.hidden = data.goals.length < 2 || !data.pareto.length || !rows.rows.length;
    if (node.hidden) return;
    const front = new Set(data.pareto);
    show(list, [data.pareto, data.knee, rows.rows.length], () => table(data));
    data.goals.slice(1).forEach((b, k) => {
      const a = data.goals[0];
      if (!charts.has(k)) { charts.set(k, new Chart(280)); figures.append(charts.get(k).node); }
      const points = rows.rows.map((row) => [rows.value(row), rows.value(row, k + 1), row]).filter(([x, y]) => typeof x === "number" && typeof y === "number");
      const axis = (goal, i) => ({ range: robust(points.map((point) => point[i]), goal.maximize ? -1 : 1), format: (value) => metric(goal.metric, value), label: `${goal.metric} (${goal.maximize ? "higher" : "lower"} is better)` });
      const of = (keep) => points.filter(([, , row]) => keep(row[0]));
      charts.get(k).set({
        label: `${b.metric} against ${a.metric}`, x: axis(a, 0), y: axis(b, 1), corner: { right: a.maximize, up: b.maximize },
        series: [{ kind: "points", name: "others", points: of((one) => !front.has(one)), color: "var(--c-waiting)", size: 5 }, { kind: "points", name: "front", points: of((one) => front.has(one)), color: "var(--accent)", size: 9 },
          { kind: "points", name: "knee", points: of((one) => one === data.knee), color: "var(--c-failed)", shape: "star" }, { kind: "points", name: data.has_default ? "default" : "trial 0", points: of((one) => one === 0), color: "var(--ink)", shape: "open" }],
        tip: ([, , row]) => rows.tip(row), open: ([, , row]) => open(row[0]),
      });
    });
  }

  function table(data) {
    const sign = data.goals[0].maximize ? -1 : 1;
    const numbers = [...new Set([...data.pareto, 0])].filter((one) => rows.rows[one]).sort((a, b) => sign * (rows.value(rows.rows[a]) - rows.value(rows.rows[b])));
    const mark = (one) => [one === data.knee ? "knee" : "", one === 0 ? (data.has_default ? "default" : "first") : "", data.pareto.includes(one) ? "" : "not on the front"].filter(Boolean).join(", ");
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Configurations on the front" }, h("table", {}, h("thead", {}, h("tr", {}, ["trial", ...data.goals.map((goal) => goal.metric), "", "configuration"].map((title) => h(title ? "th" : "td", { scope: title ? "col" : null, class: data.goals.some((goal) => goal.metric === title) ? "number" : null }, title)))),
      h("tbody", {}, numbers.map((one) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#trial-${one}`, "data-trial": one }, one)), data.goals.map((goal, i) => h("td", { class: "number" }, metric(goal.metric, rows.value(rows.rows[one], i)))), h("td", {}, h("b", {}, mark(one))),
        h("td", { class: "soft" }, Object.entries(rows.params(rows.rows[one])).map(([key, value]) => `${key} ${shown(value)}`).join(", ")))))));
  }
  return { node, set };
}

// Two parameters that are active together, and parallel coordinates of the branch of the answer.
export function exploreView(rows, open) {
  const chart = new Chart(340);
  const [across, up] = ["across", "up"].map((title) => h("select", { "aria-label": `Parameter ${title}`, onchange: draw }));
  const lines = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Parallel coordinates" });
  const told = h("p", { class: "soft" });
  const node = h("details", { class: "panel" }, h("summary", {}, h("h2", {}, "Explore")), told, h("div", { class: "bar" }, h("h3", {}, "Two parameters"), across, up), chart.node, h("h3", {}, "All parameters of the branch, a stronger line is better"), lines);
  node.addEventListener("toggle", draw);
  let data = null;

  // The parameters of the branch of the answer, and the trials in it.
  function branch() {
    const base = data.answer?.params || data.best?.params || {};
    const tuned = data.space.filter((one) => one.name in base && (one.choices ? one.choices.length > 1 : one.low < one.high));
    const within = rows.ranked().filter((row) => tuned.every((one) => { const value = rows.cell(row, `param:${one.name}`); return value !== null && value !== undefined; }));
    return [tuned.filter((one) => new Set(within.map((row) => rows.cell(row, `param:${one.name}`))).size > 1), within];
  }

  function draw() {
    if (!data || !node.open) return;
    const [tuned, within] = branch();
    node.hidden = tuned.length < 2 || within.length < 2;
    if (node.hidden) return;
    const names = tuned.map((one) => one.name);
    [across, up].forEach((select, i) => {
      if (select.options.length === names.length) return;
      const order = (data.answer?.rows.map((row) => row.name) || names).filter((one) => names.includes(one));
      select.replaceChildren(...names.map((one) => h("option", { value: one }, one)));
      select.value = order[Math.min(i, order.length - 1)];
    });
    told.textContent = `${within.length} trials in which all of these are active: ${names.join(", ")}.`;
    const [a, b] = [across, up].map((select) => tuned.find((one) => one.name === select.value));
    const rank = (i) => Math.min(Math.floor(((within.length - 1 - i) * BINS) / within.length), BINS - 1);
    const points = within.map((row, i) => [position(a, rows.cell(row, `param:${a.name}`)), position(b, rows.cell(row, `param:${b.name}`)), row, rank(i)]);
    chart.set({
      label: `${b.name} against ${a.name}`, x: axis(a), y: axis(b), tip: ([, , row]) => rows.tip(row), open: ([, , row]) => open(row[0]),
      series: Array.from({ length: BINS }, (_, k) => ({ kind: "points", points: points.filter((point) => point[3] === k), size: 6 + k, name: k === 0 ? "worst fifth" : k === BINS - 1 ? "best fifth" : "", color: `color-mix(in oklab, var(--accent) ${20 + 20 * k}%, var(--line))` })),
    });
    parallel(tuned, within, rank);
  }

  function parallel(tuned, within, rank) {
    const width = Math.max(tuned.length * 96, Math.min(node.clientWidth - 40, 1000));
    const x = (i) => 50 + (i * (width - 120)) / Math.max(tuned.length - 1, 1);
    const y = (share) => (TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
    const paths = Array.from({ length: BINS }, () => "");
    within.forEach((row, k) => { paths[rank(k)] += tuned.map((one, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(shareOf(one, rows.cell(row, `param:${one.name}`)))}`).join(""); });
    lines.replaceChildren(s("svg", { width, height: HEIGHT, role: "img", "aria-label": `${within.length} trials over ${tuned.length} parameters` },
      paths.map((d, k) => s("path", { class: "strand", d, style: { "--share": `${10 + 22 * k}%` } })),
      tuned.map((one, i) => s("g", { class: "grid" }, s("line", { class: "tick", x1: x(i), x2: x(i), y1: TOP, y2: HEIGHT - BOTTOM }), s("text", { class: "axis", transform: `translate(${x(i) - 4} ${TOP - 12}) rotate(-20)` }, one.name.length > 18 ? `${one.name.slice(0, 17)}…` : one.name),
        (one.choices || [one.low, one.high]).map((value) => s("text", { class: "over", x: x(i) + 5, y: Number(y(shareOf(one, value))) + 4 }, String(shown(value)).slice(0, 12)))))));
  }

  return { node, set(now) { data = now; draw(); } };
}

function position(one, value) {
  return one.choices ? one.choices.findIndex((choice) => (choice === null ? "none" : JSON.stringify(choice)) === (value === "none" ? "none" : JSON.stringify(value))) : value;
}

function shareOf(one, value) {
  if (one.choices) return (position(one, value === null ? "none" : value) + 0.5) / one.choices.length;
  const unit = one.log ? Math.log : Number;
  return (unit(value) - unit(one.low)) / (unit(one.high) - unit(one.low));
}

function axis(one) {
  if (one.choices) return { label: one.name, range: [-0.5, one.choices.length - 0.5], tight: true, ticks: one.choices.map((value, i) => [i, shown(value)]) };
  return { label: `${one.name}${one.log ? ", log scale" : ""}`, range: [one.low, one.high], log: one.log, format: number };
}
