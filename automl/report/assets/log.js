// The log of a trial, rank by rank. It follows the end while the trial runs.
import { get, path } from "./api.js";
import { h, section } from "./dom.js";
import { printable } from "./format.js";

const MOST = 400_000;  // characters in the page
const COLOURS = /\x1b\[[0-9;]*m/g;

export function logView(sweep, trial) {
  const which = h("select", { id: "log-which", onchange: () => restart() });
  const text = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log" });
  const told = h("p", { class: "soft" });
  const node = section("Log", { class: "panel" }, h("div", { class: "bar" }, h("label", { for: "log-which" }, "Rank "), which), told, text);
  const chooser = which.parentElement;
  let logs = [];
  let end = -1;
  let timer = null;
  let live = false;
  let turn = 0;

  async function read() {
    const [attempt, rank] = which.value.split(" ");
    const mine = turn;
    let found;
    try {
      found = await get(`/api${path(sweep, "trials", trial)}/log?attempt=${attempt}&rank=${rank}&offset=${end}`);
    } catch (error) {
      if (mine === turn) { told.hidden = false; told.textContent = error.message; }
      found = null;
    }
    if (mine !== turn) return;
    if (found) {
      const stuck = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
      if (end < 0 && found.begin > 0) { told.hidden = false; told.textContent = `The last ${Math.round((found.end - found.begin) / 1000)} kB of the log.`; }
      end = found.end;
      if (found.text) {
        text.append(document.createTextNode(printable(found.text.replace(COLOURS, ""), "\n\t")));
        if (text.textContent.length > MOST) text.textContent = text.textContent.slice(-MOST / 2);
      } else if (!text.textContent && !told.textContent) { told.hidden = false; told.textContent = "Nothing was printed so far."; }
      if (text.textContent && told.textContent.startsWith("Nothing")) told.hidden = true;
      if (stuck) text.scrollTop = text.scrollHeight;
      text.hidden = !text.textContent;
    }
    if (found?.more) read();
    else if (live) timer = setTimeout(read, 1000);
  }

  function restart() {
    stop();
    end = -1;
    text.textContent = "";
    told.textContent = "";
    told.hidden = text.hidden = true;  // a box only if there is text
    read();
  }

  function stop() {
    turn++;
    clearTimeout(timer);
  }

  function set(found, attempts, running) {
    const changed = JSON.stringify(found) !== JSON.stringify(logs);
    const resumed = running !== live;
    live = running;
    if (!found.length) {
      told.hidden = false;
      told.textContent = attempts ? "There is no log on this machine: the trial ran inline, or on another machine." : "No attempt has begun.";
      chooser.hidden = text.hidden = true;
      return;
    }
    chooser.hidden = found.length < 2;
    if (changed) {
      const before = which.value;
      logs = found;
      which.replaceChildren(...found.map((one) => h("option", { value: `${one.attempt} ${one.rank}` }, `${one.rank}${found.some((other) => other.attempt !== one.attempt) ? `, attempt ${one.attempt}` : ""}`)));
      const last = Math.max(...found.map((one) => one.attempt));
      which.value = before && [...which.options].some((option) => option.value === before) ? before : `${last} ${found.find((one) => one.attempt === last).rank}`;
      restart();
    } else if (resumed) {
      stop();
      read();
    }
  }

  return { node, set, stop };
}
