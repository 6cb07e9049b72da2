// Every sweep of the store.
import { get, path } from "./api.js";
import { h, hidden, show } from "./dom.js";
import { count, date, duration, metric } from "./format.js";
import { empty, pill, progress, copy, spark } from "./parts.js";

export async function sweepsPage(frame) {
  frame.title("", ["Sweeps", null]);
  const told = h("p", { class: "told", role: "status" });
  const list = h("div", { class: "sweeps" });
  let data = await get("/api/overview");
  let asking = false;
  let again = false;

  function draw() {
    const running = data.sweeps.filter((one) => one.state === "running").length;
    told.textContent = `${count(data.sweeps.length, "sweep")}, ${running} running`;
    show(list, [...data.sweeps].reverse(), (sweeps) => {
      if (!sweeps.length) return empty("No sweeps yet", h("p", {}, "Start one in this folder, and it appears here. A program, then a function:"),
        ["automl sweep CONFIG -- COMMAND {NAME}", "automl sweep --objective FILE:NAME --goals 'minimize loss'"].map((line) => copy(`${line.replace("sweep", `sweep${data.option ? ` --store ${data.option}` : ""}`)}`)));
      return h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ["Sweep", "State", "Progress", "Best", "", "Time", "Created", "Machine"].map((title) =>
        h("th", { scope: "col" }, title || hidden("Course"))))), h("tbody", {}, sweeps.map(row)));
    });
  }

  function row(one) {
    const line = one.line || {};
    const goal = line.goals?.[0];
    const best = line.error ? h("span", { class: "wrong" }, line.error) : !one.line ? h("span", { class: "soft" }, "reading") : line.value === null || line.value === undefined
      ? h("span", { class: "soft" }, line.states?.infeasible ? "none feasible" : line.states?.failed ? "no success" : "none yet") : [h("b", {}, metric(goal.metric, line.value)), " ", h("span", { class: "soft" }, `${goal.metric} ${goal.maximize ? "↑" : "↓"}`, line.goals.length > 1 ? ` +${line.goals.length - 1}` : "")];
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href: path(one.name) }, one.name)),
      h("td", {}, pill(one.state)),
      h("td", { class: "wide" }, progress(line.states || {}, line.share ?? null), h("span", { class: "soft" }, `${one.num_trials}${line.budget?.trials ? ` of ${line.budget.trials}` : ""} trials`)),
      h("td", { class: "best" }, best),
      h("td", { class: "spark" }, spark(line.spark, 110, 26, goal ? `best ${goal.metric}` : "best")),
      h("td", { "data-name": "Time" }, duration(one.seconds)),
      h("td", { "data-name": "Created" }, date(one.created)),
      h("td", { "data-name": "Machine" }, one.host || "–"));
  }

  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      data = await get("/api/overview");
      draw();
    } catch { /* the banner says it; the next event asks again */ } finally {
      asking = false;
      if (again) { again = false; setTimeout(refresh, 300); }
    }
  }

  const content = [h("h1", {}, "Sweeps"), h("p", { class: "soft store" }, data.store), told, list];
  draw();
  return { content, update: refresh };
}
