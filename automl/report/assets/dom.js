// Makes elements. Text is always text: nothing of a ledger is ever parsed as HTML.
import { printable } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
    else made.setAttribute(name, value === true ? "" : printable(String(value)));
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : printable(String(child), "\n\t"))));
  return made;
}

// An element: h("a", { href: "/", onclick: act }, "text", other).
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// An element of SVG.
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Replace the content of an element if what it shows has changed; what people have focused stays.
export function show(place, data, draw) {
  const key = JSON.stringify(data);
  if (place.shown === key) return false;
  place.shown = key;
  place.replaceChildren(...[draw(data)].flat(3).filter((child) => child));
  return true;
}

// A section with a heading. `more` are further elements beside the heading.
export function section(title, attributes, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id, ...attributes }, h("h2", { id }, title), ...children);
}

// Text that only a screen reader says.
export function hidden(text) {
  return h("span", { class: "hidden" }, text);
}
