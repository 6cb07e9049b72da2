// One trial: its configuration, its curve among the others, log, attempts and files.
import { trialButtons } from "./actions.js";
import { get, inside, path } from "./api.js";
import { Chart, robust } from "./chart.js";
import { h, hidden, section, show } from "./dom.js";
import { date, duration, memory, metric, number, printable, words } from "./format.js";
import { facts, pill } from "./parts.js";
import { shown } from "./rows.js";

const OTHERS = 22;  // curves beside the trial's
const MOST = 400_000;  // characters of a log in the page
const COLOURS = /\x1b\[[0-9;]*m/g;

// The section of one trial. `close` takes it away.
export function trialView(n, data, rows, close) {
  const name = data.name;
  const address = `/api${path(name, "trials", n)}`;
  const place = Object.fromEntries(["head", "acts", "config", "error", "events"].map((key) => [key, h("div", {})]));
  const chart = new Chart(260);
  const curved = h("div", {}, h("h3", {}, `${data.goals[0].metric} among the other trials`), chart.node);
  curved.hidden = true;
  const log = inside ? null : logView(name, n);
  const node = section(`Trial ${n}`, { class: "panel trial", id: `trial-${n}`, tabindex: "-1" }, h("div", { class: "around" },
    n > 0 ? h("a", { href: `#trial-${n - 1}`, "data-trial": n - 1 }, `← ${n - 1}`) : null, rows.rows[n + 1] ? h("a", { href: `#trial-${n + 1}`, "data-trial": n + 1 }, `${n + 1} →`) : null, h("button", { type: "button", onclick: close }, "Close")),
    place.head, place.acts, h("div", { class: "halves" }, h("div", {}, curved, log?.node), h("div", {}, place.error, place.config, place.events)));
  let trial = null;
  let curves = inside?.curves || {};

  async function load() {
    if (inside) {
      trial = fromRow(rows, rows.rows[n], inside);
    } else {
      const best = rows.ranked().slice(0, OTHERS).map((row) => row[0]).filter((one) => one !== n);
      [trial, curves] = await Promise.all([get(address), get(`/api${path(name, "curves")}?trials=${[n, ...best].join(",")}&metric=${encodeURIComponent(data.goals[0].metric)}`)]);
    }
    draw();
  }

  function draw() {
    const steps = rows.rows[n];
    const seconds = trial.state === "running" && trial.started !== null ? data.seconds - trial.started : trial.seconds;
    show(place.head, [trial.state, trial.message, trial.values, Math.round(seconds)], () => head(trial, data, seconds));
    if (!inside) show(place.acts, trial.state, () => h("div", { class: "acts" }, trialButtons(name, trial)));
    show(place.config, [trial.params, data.answer?.params, data.first?.params], () => configuration(trial, data));
    show(place.error, [trial.traceback], () => trial.traceback && h("pre", { tabindex: "0" }, trial.traceback));
    show(place.events, trial.events, (events) => events.length && [h("h3", {}, "Attempts and events"), h("ol", { class: "events" }, events.map((one) => h("li", {}, h("time", {}, date(one.recorded)), h("span", {}, one.words, one.message ? h("span", { class: "soft" }, `: ${one.message}`) : null))))]);
    log?.set(trial.logs, trial.attempts, trial.state === "running");
    drawCurves(steps);
  }

  function drawCurves() {
    const goal = data.goals[0];
    const lines = Object.entries(curves).map(([key, found]) => [Number(key), found[goal.metric]]).filter(([, found]) => found);
    curved.hidden = !lines.some(([key]) => key === n);
    if (curved.hidden) return;
    const best = rows.ranked()[0]?.[0];
    const all = lines.flatMap(([, found]) => found.values).filter((value) => typeof value === "number");
    const ats = lines.flatMap(([, found]) => found.steps);
    const series = lines.sort(([a], [b]) => (a === n) - (b === n) || (a === best) - (b === best)).map(([key, found]) => ({
      kind: "line", points: found.steps.map((at, i) => [at, found.values[i], i]), color: key === n ? "var(--accent)" : key === best ? "var(--c-completed)" : "var(--faint)",
      size: key === n ? 3 : 1.4, name: key === n ? `trial ${n}` : key === best ? `best single run, trial ${best}` : "", tips: key === n, quiet: key !== n,
    }));
    chart.set({
      label: `${goal.metric} of trial ${n} by step, among others`,
      x: { label: "step", range: [Math.min(...ats), Math.max(...ats)], format: number },
      y: { range: robust(all, goal.maximize ? -1 : 1), format: (value) => metric(goal.metric, value) }, series,
      tip: ([at, value]) => [metric(goal.metric, value), `step ${at}`],
    });
  }

  load();
  return { node, number: n, load, stop: () => log?.stop() };
}

function fromRow(rows, row, { tracebacks }) {
  const cell = (key) => rows.cell(row, key);
  return { number: row[0], state: cell("state"), failure: cell("failure"), message: cell("message"), seconds: cell("seconds"), started: cell("started"), attempts: cell("attempts"), source: cell("source"), peak_memory_bytes: cell("peak_memory_bytes"),
    params: rows.params(row), values: rows.goals.map((_, i) => rows.value(row, i)), traceback: tracebacks[row[0]] || "", events: [], logs: [] };
}

function head(trial, data, seconds) {
  const values = data.goals.map((goal, i) => (typeof trial.values[i] === "number" ? `${goal.metric} ${metric(goal.metric, trial.values[i])}` : null)).filter(Boolean);
  return [h("div", { class: "title" }, pill(trial.violation ? "infeasible" : trial.state), h("b", {}, values.join(", ") || (trial.failure ? words(trial.failure) : trial.violation || "no value yet"))),
    trial.message ? h("p", { class: trial.failure ? "wrong" : "soft" }, trial.message) : null,
    facts([["Time", duration(seconds)], ["Attempts", trial.attempts > 1 ? String(trial.attempts) : ""], ["Proposed by", trial.source], ["Peak memory", trial.peak_memory_bytes > 50e6 ? memory(trial.peak_memory_bytes) : ""]])];
}

// The configuration beside the recommended one and the default.
function configuration(trial, data) {
  const others = [data.answer?.params ? ["recommended", data.answer.params] : null, data.first && data.first.number !== trial.number ? [data.has_default ? "default" : "trial 0", data.first.params] : null].filter(Boolean);
  const keys = [...new Set([...data.space.map((one) => one.name), ...Object.keys(trial.params)])].filter((key) => key in trial.params || others.some(([, one]) => key in one));
  const cell = (params, key) => (key in params ? shown(params[key]) : "–");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The configuration" }, h("table", { class: "compare" }, h("thead", {}, h("tr", {}, ["parameter", "this trial", ...others.map(([title]) => title)].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, h("b", {}, cell(trial.params, key))), others.map(([, one]) => {
      const differs = JSON.stringify(one[key]) !== JSON.stringify(trial.params[key]);
      return h("td", { class: differs ? "different" : "equal" }, cell(one, key), differs ? hidden(" (differs)") : null);
    }))))));
}

// The log, rank by rank. It follows the end while the trial runs.
function logView(sweep, trial) {
  const which = h("select", { id: "log-which", onchange: () => restart() });
  const text = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log" });
  const told = h("p", { class: "soft" });
  const chooser = h("div", { class: "bar" }, h("label", { for: "log-which" }, "Rank "), which);
  const node = section("Log", { class: "panel" }, chooser, told, text);
  let [logs, end, timer, live, turn] = [[], -1, null, false, 0];

  function tell(words) {
    told.textContent = words;
    told.hidden = !words;
    text.hidden = !text.textContent;  // a box only if there is text
  }

  async function read() {
    const [attempt, rank] = which.value.split(" ");
    const mine = turn;
    const found = await get(`/api${path(sweep, "trials", trial)}/log?attempt=${attempt}&rank=${rank}&offset=${end}`).catch((error) => ({ error: error.message }));
    if (mine !== turn) return;
    if (found.error) tell(found.error);
    else {
      const stuck = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
      const cut = end < 0 && found.begin > 0 ? `The last ${Math.round((found.end - found.begin) / 1000)} kB of the log.` : null;
      end = found.end;
      text.append(document.createTextNode(printable(found.text.replace(COLOURS, ""), "\n\t")));
      if (text.textContent.length > MOST) text.textContent = text.textContent.slice(-MOST / 2);
      tell(cut ?? (!text.textContent ? "Nothing was printed so far." : told.textContent.startsWith("The last") ? told.textContent : ""));
      if (stuck) text.scrollTop = text.scrollHeight;
    }
    if (found.more) read();
    else if (live) timer = setTimeout(read, 1000);
  }

  function stop() {
    turn++;
    clearTimeout(timer);
  }

  function restart() {
    stop();
    end = -1;
    text.textContent = "";
    tell("");
    read();
  }

  function set(found, attempts, running) {
    const changed = JSON.stringify(found) !== JSON.stringify(logs);
    const resumed = running !== live;
    live = running;
    chooser.hidden = found.length < 2;
    if (!found.length) return tell(attempts ? "There is no log on this machine: the trial ran inline, or on another machine." : "No attempt has begun.");
    if (changed) {
      const before = which.value;
      logs = found;
      which.replaceChildren(...found.map((one) => h("option", { value: `${one.attempt} ${one.rank}` }, `${one.rank}${found.some((other) => other.attempt !== one.attempt) ? `, attempt ${one.attempt}` : ""}`)));
      const last = Math.max(...found.map((one) => one.attempt));
      which.value = [...which.options].some((option) => option.value === before) ? before : `${last} ${found.find((one) => one.attempt === last).rank}`;
      restart();
    } else if (resumed) { stop(); read(); }
  }

  return { node, set, stop };
}
