// The trials of a sweep as rows; only those that have changed are asked for again.
import { get, path } from "./api.js";
import { number } from "./format.js";

export function shown(value) {
  return value === null ? "none" : typeof value === "number" ? number(value) : Array.isArray(value) ? number(value) : String(value);
}

export class Rows {
  constructor(sweep) {
    this.sweep = sweep;
    this.version = 0;
    this.epoch = 0;
    this.rows = [];
    this.columns = [];  // { key, name, kind: "fact" | "goal" | "param" | "metric" }
  }

  // Ask for what has changed; true if anything has.
  async refresh(signal) {
    return this.take(await get(`/api${path(this.sweep)}/table?since=${this.version}&epoch=${this.epoch}`, signal));
  }

  // Take what has changed; true if anything has. What is older than the table has changed nothing.
  take(found) {
    if (found.epoch === this.epoch && found.version < this.version) return false;
    if (found.whole) this.rows = [];
    this.version = found.version;
    this.epoch = found.epoch;
    this.goals = found.goals;
    const goals = found.goals.map(({ metric }) => metric);
    this.columns = [
      ...found.facts.map((key) => ({ key, name: key, kind: "fact" })),
      ...goals.map((name) => ({ key: `goal:${name}`, name, kind: "goal" })),
      ...found.params.map((name) => ({ key: `param:${name}`, name, kind: "param" })),
      ...found.metrics.map((name) => ({ key: `metric:${name}`, name, kind: "metric" })),
    ];
    this.index = new Map(this.columns.map(({ key }, i) => [key, i]));
    for (const row of found.rows) this.rows[row[0]] = row;
    return found.rows.length > 0 || found.whole;
  }

  // The cell of a row; undefined if a newer column is not known of it.
  cell(row, key) {
    const value = row[this.index.get(key)];
    return value === "nan" || value === "inf" || value === "-inf" ? Number(value.replace("inf", "Infinity")) : value;
  }

  value(row, goal = 0) {
    return this.cell(row, `goal:${this.goals[goal].metric}`);
  }

  params(row) {
    return Object.fromEntries(this.columns.filter(({ kind }) => kind === "param").map(({ key, name }) => [name, this.cell(row, key)]).filter(([, v]) => v !== null && v !== undefined));
  }

  // The trials with a value for a goal, the best first.
  ranked(goal = 0) {
    const sign = this.goals?.[goal]?.maximize ? -1 : 1;
    const known = this.rows.filter((row) => typeof this.value(row, goal) === "number");
    return known.sort((a, b) => sign * (this.value(a, goal) - this.value(b, goal)) || a[0] - b[0]);
  }

  // The lines of a tooltip.
  tip(row) {
    const values = this.goals.map(({ metric }, i) => `${metric} ${shown(this.value(row, i))}`);
    const failure = this.cell(row, "failure");
    return [`Trial ${row[0]}`, failure ? `${failure.replaceAll("_", " ")}: ${this.cell(row, "message")}` : values.join(", "), ...Object.entries(this.params(row)).map(([name, value]) => `${name} = ${shown(value)}`)];
  }
}
