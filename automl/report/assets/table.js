// A table of very many rows: only those in view are in the document.
import { h } from "./dom.js";

const ROW = 34;  // pixels; style.css has the same
const SPARE = 12;  // rows above and below what is in view

//   columns: [{ key, title, number, width, cell: (row) => text or node, sortable }]
//   sort: { key, down }, act(key) is called if a heading is pressed
export class Table {
  constructor(label, act) {
    this.act = act;
    this.columns = [];
    this.rows = [];
    this.head = h("tr", { role: "row" });
    this.body = h("tbody", { role: "rowgroup" });
    this.group = h("colgroup");
    this.table = h("table", { role: "table", "aria-label": label }, this.group, h("thead", { role: "rowgroup" }, this.head), this.body);
    this.node = h("div", { class: "rows", tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.waiting = false;
    this.node.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(this.node);
  }

  set(columns, rows, sort) {
    const key = JSON.stringify([columns.map((one) => [one.key, one.title, one.width]), sort]);
    this.rows = rows;
    if (key !== this.key) {
      const focused = document.activeElement?.dataset?.key;
      this.key = key;
      this.columns = columns;
      this.group.replaceChildren(...columns.map((one) => h("col", { style: { width: `${one.width}px` } })));
      this.table.style.setProperty("width", `${columns.reduce((sum, one) => sum + one.width, 0)}px`);
      this.head.replaceChildren(...columns.map((one) => this.heading(one, sort)));
      if (focused) this.head.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }
    this.node.style.setProperty("max-height", `${ROW * (rows.length + 2)}px`);  // no empty room below few rows
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.table.setAttribute("aria-colcount", this.columns.length);
    this.drawn = null;
    this.live = new Map();  // rows that are in the document, by place
    this.above = spacer();
    this.below = spacer();
    const focused = document.activeElement?.closest?.("tr")?.dataset.row;
    this.body.replaceChildren(this.above, this.below);
    this.draw();
    if (focused !== undefined) this.body.querySelector(`tr[data-row="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  }

  heading(one, sort) {
    const sorted = sort.key === one.key;
    const button = h("button", { type: "button", "data-key": one.key, title: one.title, onclick: () => this.act(one.key) }, one.title, h("i", { "aria-hidden": "true" }, sorted ? (sort.down ? "▾" : "▴") : ""));
    return h("th", { scope: "col", role: "columnheader", class: one.number ? "number" : null, "aria-sort": sorted ? (sort.down ? "descending" : "ascending") : "none" }, button);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    if (!this.above) return;  // nothing was set yet
    const seen = Math.ceil((this.node.clientHeight || 600) / ROW);
    const first = Math.max(Math.floor(this.node.scrollTop / ROW) - SPARE, 0);
    const last = Math.min(first + seen + 2 * SPARE, this.rows.length);
    const key = `${first} ${last}`;
    if (key === this.drawn) return;
    this.drawn = key;
    for (const [i, made] of this.live) {
      if (i >= first && i < last) continue;
      made.remove();
      this.live.delete(i);
    }
    let before = this.above;
    for (let i = first; i < last; i++) {
      const known = this.live.get(i) || this.make(i);
      if (before.nextSibling !== known) before.after(known);
      before = known;
    }
    stretch(this.above, first, this.columns.length);
    stretch(this.below, this.rows.length - last, this.columns.length);
  }

  make(i) {
    const row = this.rows[i];
    const made = h("tr", { role: "row", "aria-rowindex": i + 2, "data-row": row[0] }, this.columns.map((one) =>
      h("td", { role: "cell", class: one.number ? "number" : null }, one.cell(row))));
    this.live.set(i, made);
    return made;
  }
}

// A row without content, as high as the rows that are not in the document.
function spacer() {
  return h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
}

function stretch(row, count, span) {
  row.hidden = count <= 0;
  row.firstChild.colSpan = span;
  row.firstChild.style.setProperty("height", `${Math.max(count, 0) * ROW}px`);
}
