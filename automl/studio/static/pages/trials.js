// Every trial of a sweep: sort, filter, choose columns, export what is shown.
import { get, path } from "../api.js";
import { configuration } from "../configuration.js";
import { h, hidden, section } from "../dom.js";
import { parseFilter } from "../filter.js";
import { count, duration, memory, metric, number, words } from "../format.js";
import { empty, pill, sweepNav } from "../parts.js";
import { save } from "../save.js";
import { Table } from "../table.js";
import { TrialsTable } from "../trials_table.js";

const SHOWN = ["number", "state", "seconds", "peak_memory_bytes"];
const TITLES = { number: "trial", seconds: "time", peak_memory_bytes: "memory", num_reports: "reports", step: "last step" };
const FORMATS = { seconds: duration, started: duration, ended: duration, peak_memory_bytes: memory };
const NUMBERS = new Set(["number", "attempts", "seconds", "peak_memory_bytes", "started", "ended", "num_reports", "step"]);

export async function trialsPage(frame, name) {
  frame.title(`Trials of ${name}`, ["Sweeps", "/"], [name, path(name)], ["Trials", null]);
  const trials = new TrialsTable(name);
  let [data] = await Promise.all([get(`/api${path(name)}`), trials.refresh()]);
  const query = new URLSearchParams(location.search);
  const sort = { key: query.get("sort") || "number", down: query.get("down") !== "0" };
  let columns = query.get("columns")?.split(",") || null;
  let shown = [];

  const field = h("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", value: query.get("filter") || "", placeholder: example(), "aria-describedby": "filter-told", oninput: () => { remember(); draw(); } });
  const told = h("p", { id: "filter-told", class: "told", role: "status" });
  const table = new Table(`Trials of ${name}`, (key) => {
    sort.down = sort.key === key ? !sort.down : false;
    sort.key = key;
    remember();
    draw();
  });
  const boxes = h("div", { class: "boxes" });
  const picker = h("details", { class: "picker" }, h("summary", {}, "Columns"), boxes);
  const bar = h("div", { class: "bar" }, h("label", { class: "grow", for: "filter" }, hidden("Filter trials, such as bleu > 20 and precision = bf16"), field), picker,
    h("button", { type: "button", onclick: () => exported("csv") }, "CSV"), h("button", { type: "button", onclick: () => exported("json") }, "JSON"));

  function example() {
    const goal = trials.goals?.[0]?.metric || "loss";
    const choiceOf = data.space.find((one) => one.choices);
    return `Filter, such as: ${goal} ${trials.goals?.[0]?.maximize ? ">" : "<"} 1${choiceOf ? ` and ${choiceOf.name} = ${configuration.show(choiceOf.choices[0])}` : ""}`;
  }

  function remember() {
    const now = new URLSearchParams();
    if (field.value) now.set("filter", field.value);
    if (sort.key !== "number" || !sort.down) { now.set("sort", sort.key); now.set("down", sort.down ? "1" : "0"); }
    if (columns) now.set("columns", columns.join(","));
    history.replaceState(history.state, "", `${location.pathname}${now.size ? `?${now}` : ""}`);
  }

  function chosenColumns() {
    const usual = trials.columns.filter(({ key, kind }) => SHOWN.includes(key) || kind === "goal" || kind === "param").map(({ key }) => key);
    const of = (wanted) => trials.columns.filter(({ kind }) => kind === wanted).map(({ key }) => key);
    const order = ["number", ...of("goal"), "state", "seconds", ...of("param")];
    const wanted = columns || usual;
    const known = trials.columns.map(({ key }) => key);
    return [...order, ...known.filter((key) => !order.includes(key))].filter((key) => wanted.includes(key) && known.includes(key));
  }

  function column(key) {
    const { name: title, kind } = trials.columns[trials.index.get(key)];
    const sample = Array.from({ length: Math.min(trials.rows.length, 40) }, (_, i) => trials.cell(trials.rows[trials.rows.length <= 40 ? i : Math.floor((i * trials.rows.length) / 40)], key));
    const isNumber = kind === "fact" ? NUMBERS.has(key) : kind !== "param" || sample.every((value) => typeof value === "number" || value === null || value === undefined);
    const text = (row) => format(key, kind, title, trials.cell(row, key));
    const label = TITLES[key] || (kind === "goal" ? `${title} ${trials.goals.find((goal) => goal.metric === title)?.maximize ? "↑" : "↓"}` : kind === "metric" && trials.index.has(`goal:${title}`) ? `${title} (last)` : title.replaceAll("_", kind === "fact" ? " " : "_"));
    const longest = Math.max(label.length + 3, ...sample.map((value) => format(key, kind, title, value).length));
    const width = key === "number" ? 104 : key === "state" ? 150 : Math.min(Math.max(longest * 8 + 26, 84), 300);
    const cell = key === "number" ? (row) => numberCell(row) : key === "state" ? (row) => stateCell(row) : text;
    return { key, title: label, number: isNumber, width, cell };
  }

  function numberCell(row) {
    const best = data.best?.number === row[0];
    return [h("a", { href: path(name, "trials", row[0]) }, row[0]), best ? h("span", { class: "star", title: "the best" }, "★", hidden(" the best")) : ""];
  }

  function stateCell(row) {
    const failure = trials.cell(row, "failure");
    const mark = pill(trials.cell(row, "state"));
    if (failure) { mark.lastChild.textContent = words(failure); mark.title = trials.cell(row, "message") || ""; }
    return mark;
  }

  function draw() {
    const names = new Map();
    for (const { key, name: title } of trials.columns) if (!names.has(title)) names.set(title, key);
    let keep = () => true;
    try {
      const found = parseFilter(field.value, [...names.keys()]);
      keep = (row) => found((title) => trials.cell(row, names.get(title)));
      field.removeAttribute("aria-invalid");
      told.classList.remove("wrong");
      told.textContent = "";
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      told.classList.add("wrong");
      told.textContent = error.message;
      return;
    }
    if (!trials.index.has(sort.key)) sort.key = "number";
    shown = trials.rows.filter(keep);
    order(shown);
    told.textContent = shown.length === trials.rows.length ? count(shown.length, "trial") : `${shown.length} of ${count(trials.rows.length, "trial")}`;
    nothing.hidden = shown.length > 0;
    table.node.hidden = !shown.length;
    nothing.replaceChildren(trials.rows.length ? empty("No trial matches the filter") : empty("No trials yet", h("p", {}, "They appear here as the sweep begins them.")));
    table.set(chosenColumns().map(column), shown, sort);
    offer();
  }

  function order(rows) {
    const sign = sort.down ? -1 : 1;
    const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
    rows.sort((one, other) => {
      const [a, b] = [trials.cell(one, sort.key), trials.cell(other, sort.key)];
      if (!known(a) || !known(b)) return known(b) - known(a) || one[0] - other[0];
      const both = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return sign * both || one[0] - other[0];
    });
  }

  function offer() {
    const wanted = new Set(chosenColumns());
    const key = trials.columns.map((one) => one.key).join("\n");
    if (boxes.shown === key) return;
    boxes.shown = key;
    const kinds = { fact: "Facts", goal: "Goals", param: "Parameters", metric: "Metrics (last report)" };
    boxes.replaceChildren(...Object.entries(kinds).map(([kind, title]) => h("fieldset", {}, h("legend", {}, title), trials.columns.filter((one) => one.kind === kind).map((one) =>
      h("label", {}, h("input", { type: "checkbox", checked: wanted.has(one.key), onchange: (event) => {
        const now = new Set(chosenColumns());
        if (event.target.checked) now.add(one.key); else now.delete(one.key);
        columns = [...now];
        remember();
        draw();
      } }), TITLES[one.key] || one.name)))));
  }

  function exported(kind) {
    const keys = chosenColumns();
    const titles = keys.map((key) => trials.columns[trials.index.get(key)]).map(({ name: title, kind: one }) => (one === "metric" && trials.index.has(`goal:${title}`) ? `${title} (last)` : title));
    const cells = (row) => keys.map((key) => trials.cell(row, key) ?? null);
    if (kind === "json") {
      const rows = shown.map((row) => Object.fromEntries(cells(row).map((value, i) => [titles[i], typeof value === "number" && !Number.isFinite(value) ? String(value) : value])));
      save(new Blob([JSON.stringify(rows, null, 1)], { type: "application/json" }), `${name}.json`);
    } else {
      const lines = [titles, ...shown.map(cells)].map((line) => line.map(csv).join(","));
      save(new Blob([lines.join("\r\n")], { type: "text/csv" }), `${name}.csv`);
    }
  }

  let asking = false;
  let again = false;
  async function update(message) {
    if (!message.all && !message.changed?.includes(name)) return;
    if (message.page?.name === name) {
      data = message.page;
      if (trials.take(message.table)) draw();
      return;
    }
    if (asking) { again = true; return; }
    asking = true;
    try {
      let changed;
      [data, changed] = await Promise.all([get(`/api${path(name)}`), trials.refresh()]);
      if (changed) draw();
    } catch { /* the banner says it; the next event asks again */ } finally {
      asking = false;
      if (again) { again = false; setTimeout(() => update({ all: true }), 300); }
    }
  }

  const nothing = h("div", {});
  const content = h("div", { class: "sided" }, sweepNav(name, "Trials"), h("div", { class: "page fill" }, h("div", { class: "title" }, h("h1", {}, "Trials"), told), bar, nothing, table.node));
  return { content: [content], update, follows: { name, table: trials }, shown: draw };
}

function format(key, kind, title, value) {
  if (value === null || value === undefined) return "–";
  if (FORMATS[key]) return FORMATS[key](value);
  if (kind === "param") return configuration.show(value);
  return typeof value === "number" ? (kind === "fact" ? number(value) : metric(title, value)) : String(value);
}

// A cell of CSV. A text that a spreadsheet would take for a formula gets an apostrophe.
function csv(value) {
  if (value === null) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
