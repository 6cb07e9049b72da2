// One sweep on one page: answer, progress, failures, trials, one trial; folded: explore, setup, steering.
import { commandHistory, steering } from "./actions.js";
import { answerView } from "./answer.js";
import { get, inside, path } from "./api.js";
import { h, section, show } from "./dom.js";
import { count, date, duration, metric, number, words } from "./format.js";
import { exploreView, frontView } from "./explore.js";
import { STATES, copy, facts, pill, progress, spark } from "./parts.js";
import { progressView } from "./progress.js";
import { Rows, shown } from "./rows.js";
import { trialView } from "./trial.js";
import { trialsView } from "./trials.js";

export async function sweepPage(frame, name, trial) {
  frame.title(name, ["Sweeps", "/"], [name, null]);
  const rows = new Rows(name);  // in the studio it is empty until the stream's first event
  let data = inside ? inside.page : await get(`/api${path(name)}`);
  if (inside) rows.take(inside.table);
  const place = Object.fromEntries(["head", "answer", "warnings", "running", "failures", "steered", "done", "setup"].map((key) => [key, h("div", { class: `part-${key}` })]));
  const views = { progress: progressView(rows, open), front: frontView(rows, open), trials: trialsView(rows), explore: exploreView(rows, open) };
  const chosen = h("div", { class: "chosen-trial" });
  let one = null;

  function open(n, quiet) {
    one?.stop();
    one = rows.rows[n] ? trialView(n, data, rows, () => open(-1)) : null;
    chosen.replaceChildren(...(one ? [one.node] : []));
    if (!quiet) try { history.replaceState(null, "", one ? `#trial-${n}` : location.pathname + location.search); } catch { /* a frame has no history */ }
    if (one) { one.node.scrollIntoView({ block: "start" }); one.node.focus({ preventScroll: true }); }
  }

  function draw() {
    show(place.head, [data.state, data.states, data.share, data.lines, data.host, Math.round(data.seconds)], () => head(data));
    show(place.answer, [data.answer, data.headline, data.states, data.has_default], () => answerView(data));
    show(place.warnings, data.answer?.caveats ?? [], (found) => found.length && section("Reasons to doubt", { class: "panel warn" }, h("ul", {}, found.map((text) => h("li", {}, text)))));
    show(place.running, [data.running, data.state], () => data.running.length && running(data));
    show(place.failures, [data.answer?.failures, data.limits], () => failures(data, views.trials));
    show(place.setup, [data.space, data.links, data.budget, data.setup], () => setup(data));
    if (!inside) {
      show(place.steered, [data.state, data.budget, data.space, data.limits], () => steering(data));
      show(place.done, data.commands, (found) => found.length && commandHistory(found));
    }
    for (const view of Object.values(views)) view.set(data);
    const wanted = /^#trial-(\d+)$/.exec(location.hash)?.[1] ?? trial;
    if (wanted !== undefined && !one && rows.rows[wanted]) { trial = undefined; open(Number(wanted), true); }
  }

  async function update(message) {
    if (!message.all && !message.changed?.includes(name)) return;
    if (message.page?.name === name) { data = message.page; rows.take(message.table); }
    else {
      try { [data] = await Promise.all([get(`/api${path(name)}`), rows.refresh()]); } catch { return; /* the banner says it */ }
    }
    draw();
    if (one && (!message.table || message.table.rows.some(([number]) => number === one.number))) one.load().catch(() => {});
  }

  const content = h("div", { class: "page" }, place.head, place.answer, views.front.node, place.warnings,
    h("div", { class: "columns" }, h("div", { class: "column" }, views.progress.node), h("div", { class: "column" }, place.running, place.failures, place.steered)),
    views.trials.node, chosen, views.explore.node, place.setup, place.done);
  content.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-trial]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    open(Number(link.dataset.trial));
  });
  draw();
  return { content: [content], update, close: () => one?.stop(), follows: { name, table: rows } };
}

function head(data) {
  const failed = data.state === "finished" && !data.best && data.states.failed;
  const dead = data.state === "interrupted" && Object.keys(data.states).length
    ? h("div", { class: "note" }, h("p", {}, h("b", {}, "No controller runs. "), "The sweep was interrupted; everything so far is recorded. To continue it:"), copy(data.lines_to_type.resume)) : null;
  return [h("div", { class: "title" }, h("h1", {}, data.name), pill(failed ? "failed" : data.state)),
    ...data.lines.slice(0, data.state === "running" ? 9 : 1).map((line) => h("p", { class: "soft" }, line)), progress(data.states, data.share),
    h("p", { class: "legend" }, STATES.filter((one) => data.states[one]).map((one) => h("span", {}, pill(one), ` ${data.states[one]}`))), dead];
}

function running(data) {
  const goal = data.goals[0].metric;
  return section("Running now", { class: "panel" }, h("ul", { class: "running" }, data.running.map((one) => h("li", {},
    h("a", { href: `#trial-${one.number}`, "data-trial": one.number }, `Trial ${one.number}`), h("span", { class: "soft" }, [one.step === null ? "no report yet" : `step ${number(one.step)}`, one.attempt > 1 ? `attempt ${one.attempt}` : "", one.started === null ? "" : duration(data.seconds - one.started)].filter(Boolean).join(", ")),
    spark(one.values, 120, 26, goal), h("b", {}, one.values.length ? metric(goal, one.values[one.values.length - 1]) : "–")))));
}

function failures(data, trials) {
  const groups = data.answer?.failures || [];
  if (!groups.length) return null;
  return section("Failures", { class: "panel" }, h("ul", { class: "failures" }, groups.map((one) => h("li", {},
    h("p", {}, h("b", {}, `${one.count} ${words(one.kind)}: `), h("span", { class: "wrong" }, one.message)),
    h("p", { class: "soft" }, "Trials ", one.trials.slice(0, 6).map((n, i) => [i ? ", " : "", h("a", { href: `#trial-${n}`, "data-trial": n }, n)]), one.count > 6 ? ", ... " : " ", h("button", { type: "button", class: "link", onclick: () => trials.filter(`failure = ${one.kind}`) }, "all of this kind")),
    one.where ? h("p", {}, one.where, ".") : null, one.cut ? [h("p", { class: "small soft" }, "To cut it off:"), copy(one.cut)] : null))));
}

function setup(data) {
  const budget = data.budget;
  const limits = [budget.trials && count(budget.trials, "trial"), budget.time && duration(budget.time), budget.worker_time && `${duration(budget.worker_time)} of workers`, budget.target !== null && `target ${number(budget.target)}`, budget.until && `until ${budget.until}`].filter(Boolean).join(", ");
  const links = Object.entries(data.links).map(([title, href]) => h("a", { href, target: "_blank", rel: "noreferrer noopener" }, title));
  const rows = data.setup || [["goals", data.goals.map((goal) => goal.text).join("; ")], ["constraints", data.constraints.join("; ")], ["budget", limits || "no limit"], ["workload", data.workload || ""], ["suggester", data.suggester], ["stopper", data.stopper], ["seed", String(data.seed)], ["created", date(data.created)]];
  const values = (one) => (one.choices ? one.choices.map((value) => shown(value)).join(", ") : `${number(one.low)} to ${number(one.high)}${one.log ? ", log" : ""}`);
  const when = (one) => (one.when ? Object.entries(one.when).map(([key, list]) => `${key} is ${[list].flat().map((value) => shown(value)).join(" or ")}`).join(", ") : "");
  return h("details", { class: "panel", id: "setup" }, h("summary", {}, h("h2", {}, "Setup")), facts(rows), links.length ? h("p", {}, h("b", {}, "Ray dashboard: "), h("span", { class: "links" }, links), h("span", { class: "soft" }, " (it asks for the token that the line `cat ~/.ray/auth_token` prints)")) : null,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The space" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, ["parameter", "values", "default", "only if"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, data.space.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, values(one)), h("td", {}, "default" in one ? shown(one.default) : "–"), h("td", {}, when(one))))))));
}
