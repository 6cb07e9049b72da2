// Which worker ran which trial, and when.
import { h, s } from "../dom.js";
import { duration, durationMark } from "../format.js";
import { ticks } from "../scales.js";

const LANE = 14;
const MAX_LANES = 24;
const MAX_BARS = 3000;

export function timeline(open) {
  const svg = s("svg", { "aria-hidden": "true" });
  const node = h("div", { class: "timeline", role: "img", "aria-label": "The trials of each worker" }, svg);  // until it is drawn
  let given = null;
  new ResizeObserver(() => given && draw()).observe(node);
  node.addEventListener("click", (event) => {
    const row = given?.table.rows[event.target.dataset?.trial];
    if (row) open(row);
  });
  return { node, set(table, data) { given = { table, data }; draw(); } };

  function draw() {
    const { table, data } = given;
    const width = node.clientWidth - 8;
    if (width < 50) return;
    const bars = table.rows.filter((row) => typeof table.cell(row, "started") === "number")
      .map((row) => [begun(table, row), table.cell(row, "ended") ?? data.seconds, row]).sort((a, b) => a[0] - b[0]).slice(-MAX_BARS);
    const lanes = [];
    const placed = bars.map((bar) => {
      let lane = lanes.findIndex((free) => free <= bar[0] + 1e-9);
      if (lane < 0) lane = lanes.push(0) - 1;
      lanes[lane] = bar[1];
      return [...bar, lane];
    }).filter((bar) => bar[3] < MAX_LANES);
    const from = bars.length ? bars[0][0] : 0;
    const span = Math.max(data.seconds - from, ...bars.slice(-200).map((bar) => bar[1] - from), 1e-9);
    const x = (value) => 4 + ((value - from) / span) * (width - 8);
    const height = Math.min(lanes.length, MAX_LANES) * LANE + 24;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.replaceChildren(...placed.map(([begin, end, row, lane]) => s("rect", { class: `bar ${table.cell(row, "state")}`, x: x(begin).toFixed(1), y: lane * LANE + 1, width: Math.max(x(end) - x(begin) - 0.5, 1).toFixed(1), height: LANE - 3, rx: 2, "data-trial": row[0] }, s("title", {}, `trial ${row[0]}, ${table.cell(row, "state")}: ${duration(end - begin)}`))),
      ...ticks(from, from + span, Math.max(Math.floor(width / 100), 2)).filter((value) => value >= from && x(value) < width - 24).map((value) => s("text", { x: x(value), y: height - 6, "text-anchor": value === from ? "start" : "middle" }, durationMark(value))));
    node.setAttribute("aria-label", `${placed.length} trials on ${lanes.length} workers over ${duration(data.seconds)}`);
  }
}

// When a trial began to run: not while its worker was starting.
function begun(table, row) {
  const [started, ended, seconds] = ["started", "ended", "seconds"].map((key) => table.cell(row, key));
  return typeof ended === "number" && seconds > 0 && table.cell(row, "attempts") === 1 ? Math.max(started, ended - seconds) : started;
}
