"use strict";
// Figures wait as JSON in the page and are drawn one after the other, so that the first one shows at once.
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

function draw(element) {
  const spec = JSON.parse(document.getElementById(element.dataset.spec).textContent);
  return Plotly.newPlot(element, spec.data, spec.layout, CONFIG).then(() => { element.dataset.drawn = "yes"; });
}

async function drawAll() {
  for (const element of document.querySelectorAll(".figure")) {
    await new Promise((resume) => setTimeout(resume, 0));
    await draw(element);
  }
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
