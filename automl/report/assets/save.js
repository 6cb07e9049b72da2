// Saves what a page shows as a file.
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "color"];

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A figure as it looks now; its styles go into the file, so that it looks the same elsewhere.
export function saveSvg(svg, label) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const key of KEPT) to[i].setAttribute(key, style.getPropertyValue(key));
    to[i].removeAttribute("style");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const paper = copy.ownerDocument.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: getComputedStyle(document.body).getPropertyValue("--paper") || "white" })) paper.setAttribute(key, value);
  copy.prepend(paper);
  save(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), `${label.replace(/[^\w.-]+/g, "-").slice(0, 80)}.svg`);
}
