// The report: figures wait as JSON in the page. They are drawn while nothing else is to do, so that the page can be read at once.
import { h } from "./dom.js";
import { drawn } from "./figure.js";
import { parseFilter } from "./filter.js";
import { count } from "./format.js";
import { Selection } from "./selection.js";

const THEMES = ["auto", "light", "dark"];
const selection = new Selection();
const data = read("trials-data") || { names: [], rows: [] };

function read(id) {
  const found = document.getElementById(id);
  return found && JSON.parse(found.textContent);
}

// A frame of a notebook may store nothing.
function remembered(value) {
  try {
    if (value) localStorage.setItem("automl-theme", value);
    return localStorage.getItem("automl-theme");
  } catch {
    return value;
  }
}

function openTrial(number) {
  if (document.getElementById(`trial-${number}`)) location.hash = `trial-${number}`;
}

function drawFigure(element) {
  const spec = read(element.dataset.spec);
  const title = element.closest("section")?.querySelector("h2")?.textContent || "";
  element.replaceChildren(drawn(spec, { selection, open: openTrial, title }));
  element.style.minHeight = "";  // it kept the room until now
  element.dataset.drawn = Math.round(performance.now());  // milliseconds since the page was asked for
}

function pause() {
  return new Promise((resume) => (window.requestIdleCallback ? requestIdleCallback(resume, { timeout: 200 }) : setTimeout(resume, 0)));
}

async function drawAll() {
  for (const element of document.querySelectorAll(".figure")) {
    await pause();
    drawFigure(element);
  }
  document.body.dataset.drawn = "all";
}

function copying(button) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
  });
}

function selecting(place) {
  const told = h("span", { class: "told", role: "status" });
  const clear = h("button", { type: "button", onclick: () => { field.value = ""; selection.set(null); } }, "Show all");
  const field = h("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", placeholder: `Select trials, such as: ${data.names.at(-1) || "loss"} < 1, or drag in a figure` });
  field.addEventListener("input", () => {
    told.classList.remove("wrong");
    field.removeAttribute("aria-invalid");
    try {
      const keep = parseFilter(field.value, data.names);
      const cell = (row) => (name) => row[data.names.indexOf(name)];
      const found = data.rows.filter((row) => keep(cell(row))).map(([number]) => number);
      selection.set(field.value.trim() ? (found.length ? found : [-1]) : null, "by the filter");
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      told.classList.add("wrong");
      told.textContent = error.message;
    }
  });
  selection.addEventListener("change", () => {
    const chosen = selection.trials;
    const known = chosen && data.rows.filter(([number]) => chosen.has(number)).length;
    told.textContent = chosen ? `${count(known, "trial")} selected ${selection.words}` : "";
    if (selection.words !== "by the filter") field.value = "";
    clear.hidden = !chosen;
    for (const row of document.querySelectorAll("tr[data-trial]")) row.hidden = !selection.has(Number(row.dataset.trial));
  });
  clear.hidden = true;
  place.replaceChildren(h("label", { for: "filter" }, h("span", { class: "hidden" }, "Select trials by a filter"), field), told, clear);
}

function theming(button) {
  const show = (now) => { document.documentElement.dataset.theme = now; button.textContent = `Theme: ${now}`; };
  show(remembered() || "auto");
  button.addEventListener("click", () => {
    const now = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    remembered(now);
    show(now);
  });
  let before = "";
  window.addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; document.documentElement.dataset.theme = "light"; });
  window.addEventListener("afterprint", () => { document.documentElement.dataset.theme = before; });
}

document.querySelectorAll(".recipe button").forEach(copying);
document.querySelectorAll("#theme").forEach(theming);
document.querySelectorAll("#select").forEach(selecting);
drawAll();
