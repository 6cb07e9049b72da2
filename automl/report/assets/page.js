"use strict";
// Figures wait as JSON in the page. Those in view are drawn first, the others while nothing else is to do, so that the
// page can be read and scrolled from the beginning.
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const waiting = new Set(document.querySelectorAll(".figure"));
const inView = new Set();

async function draw(element) {
  const spec = JSON.parse(document.getElementById(element.dataset.spec).textContent);
  await Plotly.newPlot(element, spec.data, spec.layout, CONFIG);
  element.dataset.drawn = Math.round(performance.now());  // milliseconds since the page was asked for
}

function pause() {
  return new Promise((resume) => (window.requestIdleCallback ? requestIdleCallback(resume, { timeout: 200 }) : setTimeout(resume, 0)));
}

async function drawAll() {
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? inView.add(entry.target) : inView.delete(entry.target);
  }, { rootMargin: "300px" });
  waiting.forEach((element) => watcher.observe(element));
  while (waiting.size) {
    await pause();
    const next = [...waiting].find((element) => inView.has(element)) || waiting.values().next().value;
    waiting.delete(next);
    await draw(next);
  }
  watcher.disconnect();
  document.body.dataset.drawn = "all";
}

function copying(button) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
  });
}

document.querySelectorAll(".recipe button").forEach(copying);
drawAll();
