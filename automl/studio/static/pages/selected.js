// The selected trials: a filter that selects them as dragging in a figure does, and a table.
import { path } from "../api.js";
import { configuration } from "../configuration.js";
import { h, hidden, section } from "../dom.js";
import { parseFilter } from "../filter.js";
import { count, duration, metric, words } from "../format.js";
import { pill } from "../parts.js";
import { Table } from "../table.js";

const BY_FILTER = "by the filter";

export function selectedTrials({ name, table, data, selection }) {
  const told = h("p", { id: "select-told", class: "told", role: "status" });
  const goal = data.goals[0];
  const field = h("input", { id: "select", type: "search", autocomplete: "off", spellcheck: "false", "aria-describedby": "select-told", placeholder: `Select trials, such as: ${goal.metric} ${goal.maximize ? ">" : "<"} 1, or drag in a figure`, oninput: filtered });
  const clear = h("button", { type: "button", onclick: () => { field.value = ""; selection.set(null); field.focus(); } }, "Show all");
  const rows = new Table("The trials that are shown", sorted);
  const heading = h("p", { class: "soft" });
  const sort = { key: `goal:${goal.metric}`, down: goal.maximize };
  const bar = h("div", { class: "bar picked" }, h("label", { for: "select" }, hidden("Select trials by a filter, such as lr > 0.01 and loss < 2"), field), told, clear);
  rows.node.classList.add("short");
  selection.addEventListener("change", changed);
  changed();
  return { bar, panel: section("Trials", { class: "panel", "data-panel": "trials" }, heading, rows.node) };

  function filtered() {
    const names = new Map();
    for (const one of table.columns) if (!names.has(one.name)) names.set(one.name, one.key);
    try {
      const keep = parseFilter(field.value, [...names.keys()]);
      const found = table.rows.filter((row) => keep((title) => table.cell(row, names.get(title)))).map(([number]) => number);
      field.removeAttribute("aria-invalid");
      told.classList.remove("wrong");
      selection.set(field.value.trim() ? (found.length ? found : [-1]) : null, BY_FILTER);
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      told.classList.add("wrong");
      told.textContent = error.message;
    }
  }

  function sorted(key) {
    sort.down = sort.key === key ? !sort.down : false;
    sort.key = key;
    draw();
  }

  function changed() {
    const chosen = selection.trials;
    const known = table.rows.filter(([number]) => selection.has(number)).length;
    if (selection.words !== BY_FILTER && chosen) { field.value = ""; field.removeAttribute("aria-invalid"); told.classList.remove("wrong"); }
    told.textContent = chosen ? `${count(known, "trial")} selected ${selection.words}` : "";
    clear.hidden = !chosen;
    draw();
  }

  function draw() {
    const shown = table.rows.filter(([number]) => selection.has(number));
    heading.textContent = selection.trials ? `${count(shown.length, "trial")} selected.` : `All ${count(shown.length, "trial")}. Drag in a figure to select some of them.`;
    const value = (row) => table.cell(row, sort.key);
    const known = (one) => one !== null && one !== undefined;
    shown.sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      if (!known(one) || !known(other)) return known(other) - known(one) || a[0] - b[0];
      const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
      return (sort.down ? -order : order) || a[0] - b[0];
    });
    rows.set(columns(), shown, sort);
  }

  function columns() {
    const rank = ({ key, kind }) => ["number", "goal", "state", "seconds", "param"].indexOf(kind === "fact" ? key : kind);
    return table.columns.filter((one) => rank(one) >= 0).sort((a, b) => rank(a) - rank(b)).map(({ key, name: title, kind }) => ({
      key, title: key === "number" ? "trial" : key === "seconds" ? "time" : title, number: kind === "goal" || key === "seconds", width: key === "state" ? 150 : Math.max(title.length * 9 + 34, 96),
      cell: key === "number" ? (row) => h("a", { href: path(name, "trials", row[0]) }, row[0]) : key === "state" ? state : (row) => text(key, kind, title, table.cell(row, key)),
    }));
  }

  function state(row) {
    const mark = pill(table.cell(row, "state"));
    const failure = table.cell(row, "failure");
    if (failure) mark.lastChild.textContent = words(failure);
    return mark;
  }

  function text(key, kind, title, value) {
    if (value === null || value === undefined) return "–";
    return key === "seconds" ? duration(value) : kind === "param" ? configuration.show(value) : metric(title, value);
  }
}
