// Every sweep of the store.
import { get, path } from "../api.js";
import { h, hidden, section, show } from "../dom.js";
import { count, date, duration, metric, number } from "../format.js";
import { empty, pill, progress, shell, spark } from "../parts.js";

export async function sweepsPage(frame) {
  frame.title("", ["Sweeps", null]);
  const search = h("input", { type: "search", id: "search", placeholder: "Name, goal, state, tag", autocomplete: "off", oninput: draw });
  const told = h("p", { class: "told", role: "status" });
  const list = h("div", { class: "sweeps" });
  const archived = h("input", { type: "checkbox", onchange: draw });
  const shelf = h("label", { class: "shelf" }, archived, " archived too");
  const compare = h("button", { type: "button", onclick: () => frame.go(`/compare?${[...chosen].map((name) => `sweeps=${encodeURIComponent(name)}`).join("&")}`) }, "Compare");
  const chosen = new Set();
  let data = await get("/api/overview");
  let asking = false;
  let again = false;

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...data.sweeps].reverse().filter((one) => {
      if (one.line?.marks?.archived && !archived.checked) return false;
      const text = [one.name, ...(one.line?.marks?.tags || []), one.line?.marks?.note, one.line?.marks?.star ? "star" : "", one.state, one.host, one.line?.workload, ...(one.line?.goals || []).map((goal) => goal.text)].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const running = data.sweeps.filter((one) => one.state === "running").length;
    told.textContent = words.length ? `${found.length} of ${count(data.sweeps.length, "sweep")}` : `${count(data.sweeps.length, "sweep")}, ${running} running`;
    shelf.hidden = !data.sweeps.some((one) => one.line?.marks?.archived);
    search.parentElement.hidden = !data.sweeps.length;
    show(list, found.length || words.length ? found : null, (sweeps) => {
      if (!sweeps) return empty("No sweeps yet", h("p", {}, "Start one in this folder, and it appears here:"), shell(`automl sweep CONFIG${data.option ? ` --store ${data.option}` : ""}`));
      if (!sweeps.length) return empty("No sweep matches", h("p", {}, "Search for a part of its name, goal or state."));
      return h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ["", "Sweep", "State", "Progress", "Best", "", "Time", "Created", "Machine"].map((title, i) =>
        h("th", { scope: "col" }, title || hidden(i ? "Course" : "Compare"))))), h("tbody", {}, sweeps.map(row)));
    });
    pick();
  }

  function row(one) {
    const line = one.line || {};
    const goal = line.goals?.[0];
    const box = h("input", { type: "checkbox", "aria-label": `Compare ${one.name}`, checked: chosen.has(one.name), onchange: (event) => {
      if (event.target.checked) chosen.add(one.name); else chosen.delete(one.name);
      pick();
    } });
    const best = line.error ? h("span", { class: "wrong" }, line.error) : !one.line ? h("span", { class: "soft" }, "reading") : line.value === null || line.value === undefined
      ? h("span", { class: "soft" }, line.states?.infeasible ? "none feasible" : line.states?.failed ? "no success" : "none yet") : [h("b", {}, metric(goal.metric, line.value)), " ", h("span", { class: "soft" }, `${goal.metric} ${goal.maximize ? "↑" : "↓"}`, line.goals.length > 1 ? ` +${line.goals.length - 1}` : "")];
    return h("tr", {},
      h("td", { class: "pick" }, box),
      h("th", { scope: "row" }, h("a", { href: path(one.name) }, one.name), line.marks?.star ? h("span", { class: "star" }, "★", hidden(" with a star")) : null, (line.marks?.tags || []).map((tag) => h("span", { class: "chip tag plain" }, tag))),
      h("td", {}, pill(one.state)),
      h("td", { class: "wide" }, progress(line.states || {}, line.share ?? null), h("span", { class: "soft" }, `${one.num_trials}${line.budget?.trials ? ` of ${line.budget.trials}` : ""} trials`)),
      h("td", { class: "best" }, best),
      h("td", { class: "spark" }, spark(line.spark, 110, 26, goal ? `best ${goal.metric}` : "best")),
      h("td", { "data-name": "Time" }, duration(one.seconds)),
      h("td", { "data-name": "Created" }, date(one.created)),
      h("td", { "data-name": "Machine" }, one.host || "–"));
  }

  function pick() {
    compare.disabled = chosen.size < 2 || chosen.size > 6;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    compare.title = compare.disabled ? "Choose 2 to 6 sweeps" : "";
    compare.hidden = data.sweeps.length < 2;
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

  const bar = h("div", { class: "bar" }, h("label", { for: "search" }, hidden("Search sweeps"), search), told, shelf, compare);
  const content = [h("h1", {}, "Sweeps"), h("p", { class: "soft store" }, data.store), bar, list];
  draw();
  return { content, update: refresh };
}
