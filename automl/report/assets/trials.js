// Every trial of a sweep: sort and filter. The best is first.
import { h, hidden, section } from "./dom.js";
import { parseFilter } from "./filter.js";
import { count, duration, memory, metric, words } from "./format.js";
import { pill } from "./parts.js";
import { shown } from "./rows.js";

const TITLES = { number: "trial", seconds: "time", peak_memory_bytes: "memory" };
const MOST = 200;  // rows at once
const LEAST_MEMORY = 50e6;  // below it, what was measured is no peak

export function trialsView(rows) {
  const sort = { key: "", down: false };
  let data = null;
  let kept = [];
  const field = h("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", "aria-describedby": "filter-told", oninput: draw });
  const told = h("p", { id: "filter-told", class: "told", role: "status" });
  const table = new Table("Table of trials", (key) => {
    const first = larger(key);  // the best first
    sort.down = sort.key === key ? !sort.down : first;
    sort.key = key;
    draw();
  });
  const node = section("Trials", { class: "panel trials" }, h("div", { class: "bar" }, h("label", { for: "filter" }, hidden("Filter trials"), field), told), table.node);

  function larger(key) {
    return key.startsWith("goal:") && rows.goals.some((goal) => `goal:${goal.metric}` === key && goal.maximize);
  }

  function columns() {
    const of = (kind) => rows.columns.filter((one) => one.kind === kind).map((one) => one.key);
    const large = rows.rows.some((row) => rows.cell(row, "peak_memory_bytes") > LEAST_MEMORY);
    return ["number", ...of("goal"), "state", "seconds", ...(large ? ["peak_memory_bytes"] : []), ...of("param")];
  }

  function text(key, row) {
    const value = key === "seconds" ? seconds(row) : rows.cell(row, key);
    if (value === null || value === undefined) return "–";
    if (key === "seconds") return duration(value);
    if (key === "peak_memory_bytes") return memory(value);
    return key.startsWith("goal:") ? metric(key.slice(5), value) : shown(value);
  }

  // A running trial counts from its start.
  function seconds(row) {
    const began = rows.cell(row, "started");
    return rows.cell(row, "state") === "running" && typeof began === "number" ? Math.max(data.seconds - began, 0) : rows.cell(row, "seconds");
  }

  function column(key) {
    const { name, kind } = rows.columns[rows.index.get(key)];
    const goal = rows.goals.find((one) => kind === "goal" && one.metric === name);
    const title = goal ? `${goal.maximize ? "max" : "min"} ${name}` : TITLES[key] || name;
    const sample = rows.rows.slice(0, 60);
    const numeric = kind !== "param" ? key !== "state" : sample.every((row) => typeof (rows.cell(row, key) ?? 0) === "number");
    const longest = Math.max(title.length + 2, ...sample.map((row) => text(key, row).length));
    const width = key === "number" ? 96 : key === "state" ? 140 : Math.min(Math.max(longest * 8 + 22, 72), 260);
    const cell = key === "number" ? numberCell : key === "state" ? stateCell : (row) => text(key, row);
    return { key, title, number: numeric, width, cell };
  }

  function numberCell(row) {
    const marks = [data.answer?.numbers.includes(row[0]) ? ["★", "recommended"] : null, row[0] === 0 && data.has_default ? ["d", "the default"] : null].filter(Boolean);
    return [h("a", { href: `#trial-${row[0]}`, "data-trial": row[0] }, row[0]), marks.map(([mark, words_]) => h("span", { class: "star", title: words_ }, mark, hidden(` ${words_}`)))];
  }

  function stateCell(row) {
    const mark = pill(rows.cell(row, "state"));
    const failure = rows.cell(row, "failure");
    if (failure) { mark.lastChild.textContent = words(failure); mark.title = rows.cell(row, "message") || ""; }
    return mark;
  }

  function draw() {
    if (!data || !rows.index) return;
    node.hidden = !rows.rows.length;
    const goal = rows.goals[0];
    field.placeholder = `Filter, such as: ${goal.metric} ${goal.maximize ? ">" : "<"} ${data.first ? shown(data.first.values[0] ?? 1) : 1}`;
    if (!sort.key) { sort.key = `goal:${goal.metric}`; sort.down = goal.maximize; }
    const names = new Map();
    for (const { key, name } of rows.columns) if (!names.has(name)) names.set(name, key);
    try {
      const found = parseFilter(field.value, [...names.keys()]);
      kept = rows.rows.filter((row) => found((name) => rows.cell(row, names.get(name))));
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      told.classList.add("wrong");
      told.textContent = error.message;
      return;
    }
    field.removeAttribute("aria-invalid");
    told.classList.remove("wrong");
    told.textContent = kept.length === rows.rows.length ? count(kept.length, "trial") : `${kept.length} of ${count(rows.rows.length, "trial")}`;
    order();
    table.set(columns().map(column), kept, sort);
  }

  function order() {
    const sign = sort.down ? -1 : 1;
    const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
    kept.sort((one, other) => {
      const [a, b] = [rows.cell(one, sort.key), rows.cell(other, sort.key)];
      if (!known(a) || !known(b)) return known(b) - known(a) || other[0] - one[0];
      const both = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return sign * both || one[0] - other[0];
    });
  }

  return { node, set(now) { data = now; draw(); }, filter(words_) { field.value = words_; draw(); node.scrollIntoView(); } };
}

// A table that people sort. It shows the first rows, and more of them on demand.
//   columns: [{ key, title, number, width, cell: (row) => text or node }]
//   sort: { key, down }, act(key) is called if a heading is pressed
class Table {
  constructor(label, act) {
    this.act = act;
    this.most = MOST;
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.group = h("colgroup");
    this.more = h("button", { type: "button", class: "link", onclick: () => { this.most *= 4; this.draw(); } });
    this.table = h("table", { "aria-label": label }, this.group, h("thead", {}, this.head), this.body);
    this.node = h("div", { class: "rows", tabindex: "0", role: "region", "aria-label": label }, this.table, this.more);
  }

  set(columns, rows, sort) {
    const focused = document.activeElement?.dataset?.key;
    this.columns = columns;
    this.rows = rows;
    this.group.replaceChildren(...columns.map((one) => h("col", { style: { width: `${one.width}px` } })));
    this.table.style.setProperty("width", `${columns.reduce((sum, one) => sum + one.width, 0)}px`);
    this.head.replaceChildren(...columns.map((one) => this.heading(one, sort)));
    if (focused) this.head.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.draw();
  }

  heading(one, sort) {
    const sorted = sort.key === one.key;
    const button = h("button", { type: "button", "data-key": one.key, title: one.title, onclick: () => this.act(one.key) }, one.title, h("i", { "aria-hidden": "true" }, sorted ? (sort.down ? "▾" : "▴") : ""));
    return h("th", { scope: "col", class: one.number ? "number" : null, "aria-sort": sorted ? (sort.down ? "descending" : "ascending") : "none" }, button);
  }

  draw() {
    const focused = document.activeElement?.closest?.("tr")?.dataset.row;
    this.body.replaceChildren(...this.rows.slice(0, this.most).map((row) => h("tr", { "data-row": row[0] }, this.columns.map((one) =>
      h("td", { class: one.number ? "number" : null }, one.cell(row))))));
    this.more.hidden = this.rows.length <= this.most;
    this.more.textContent = `Show more of ${this.rows.length}`;
    if (focused !== undefined) this.body.querySelector(`tr[data-row="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  }
}
