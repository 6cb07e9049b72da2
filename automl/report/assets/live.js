"use strict";
// Asks for the state every two seconds and draws again what has changed.
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const SECONDS = 2;
let version = 0;

function element(tag, text, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.textContent = text;
  return made;
}

function section(panel) {
  let found = document.getElementById(panel.key);
  if (!found) {
    found = element("section", "", { id: panel.key });
    found.append(element("h2", panel.title), element("p", ""));
    document.getElementById("panels").append(found);
  }
  found.querySelector("p").textContent = panel.caption;
  const places = found.querySelectorAll(".figure");
  for (let i = places.length; i < panel.figures.length; i++) found.append(element("div", "", { className: "figure" }));
  places.forEach((place, i) => { if (i >= panel.figures.length) { Plotly.purge(place); place.remove(); } });
  return found;
}

async function show(state) {
  document.title = state.title + " (automl)";
  document.getElementById("title").textContent = state.title;
  const classes = ["state", "state", "headline", "certainty"];
  const first = Math.max(0, 4 - state.lines.length);
  document.getElementById("lines").replaceChildren(...state.lines.map((line, i) => element("p", line, { className: classes[i + first] })));
  const links = Object.entries(state.links).map(([name, href]) => element("a", name, { href, target: "_blank", rel: "noreferrer" }));
  document.getElementById("links").replaceChildren(...links);
  const warnings = document.getElementById("warnings");
  warnings.hidden = state.warnings.length === 0;
  warnings.querySelector("ul").replaceChildren(...state.warnings.map((warning) => element("li", warning)));
  for (const panel of state.panels) {
    const places = section(panel).querySelectorAll(".figure");
    for (let i = 0; i < panel.figures.length; i++) {
      const drawn = JSON.stringify(panel.figures[i]);
      if (places[i].spec === drawn) continue;
      // What a person has zoomed into stays as it is.
      const layout = { ...panel.figures[i].layout, uirevision: "keep" };
      await Plotly.react(places[i], panel.figures[i].data, layout, CONFIG);
      places[i].spec = drawn;
    }
  }
}

async function refresh() {
  const foot = document.getElementById("foot");
  try {
    const reply = await fetch("/state");
    if (!reply.ok) throw new Error("the address has expired: open the newest one that automl dashboard printed");
    const state = await reply.json();
    if (state.error) throw new Error(state.error);
    if (state.version !== version) {
      await show(state);
      version = state.version;
      document.body.dataset.version = version;
    }
    foot.textContent = "Up to date at " + new Date().toLocaleTimeString() + ".";
  } catch (error) {
    foot.textContent = "Not up to date: " + error.message;
  }
  setTimeout(refresh, SECONDS * 1000);
}

refresh();
