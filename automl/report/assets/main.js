// Shows the page of the address, and keeps it up to date.
import { Refused, follow, greet, keep } from "./api.js";
import { h } from "./dom.js";
import { sweepPage } from "./sweep.js";
import { sweepsPage } from "./sweeps.js";

// The address of a page, and the function that makes it.
const ROUTES = [
  [/^\/$/, sweepsPage],
  [/^\/sweeps\/([^/]+)(?:\/trials(?:\/(\d+))?)?$/, sweepPage],
];
const main = document.getElementById("main");
let page = null;  // { update(message), close() }
let turn = 0;
let restart = null;  // opens the stream for another page

// What pages may use of the frame around them.
const frame = {
  title(text, ...crumbs) {
    document.title = text ? `${text} – automl studio` : "automl studio";
    document.getElementById("crumbs").replaceChildren(...crumbs.flatMap(([name, href]) => [
      h("span", { class: "slash", "aria-hidden": "true" }, "/"),
      href ? h("a", { href }, name) : h("span", { "aria-current": "page" }, name),
    ]));
  },
  go(address) {
    history.pushState(null, "", address);
    open(true);
  },
};

async function open(focus) {
  const mine = ++turn;
  page?.close?.();
  page = null;
  const route = ROUTES.find(([pattern]) => pattern.test(location.pathname));
  if (!route) return problem("Page not found", `There is nothing at ${location.pathname}.`);
  const [pattern, make] = route;
  const parts = pattern.exec(location.pathname).slice(1).filter(Boolean).map(decodeURIComponent);
  try {
    const made = await make(frame, ...parts);
    if (mine !== turn) return made.close?.();
    page = made;
    main.replaceChildren(...made.content);
    page.shown?.();
    restart?.();
    if (focus) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
    document.body.dataset.ready = location.pathname;
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refused && error.status === 401) return askForToken(error.message);
    problem(error.status === 404 ? "Not found" : "This page cannot be shown", error.message);
  }
}

function problem(title, text) {
  frame.title(title);
  main.replaceChildren(h("div", { class: "empty" }, h("h1", {}, title), h("p", {}, text), h("p", {}, h("a", { href: "/" }, "All sweeps"))));
  document.body.dataset.ready = location.pathname;
}

function askForToken(message) {
  frame.title("Token needed");
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = h("form", { class: "empty" }, h("h1", {}, "Token needed"), h("p", {}, `${message[0].toUpperCase()}${message.slice(1)}.`),
    h("label", { for: "token" }, "Or paste the token"), field, h("button", { type: "submit" }, "Open"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keep(field.value.trim().replace(/^.*token=/, ""));
    start();
  });
  main.replaceChildren(form);
  field.focus();
  document.body.dataset.ready = location.pathname;
}

function changed(message) {
  document.getElementById("banner").textContent = message.error ? `Not up to date: ${message.error}` : "";
  page?.update?.(message);
}

function connected(open) {
  const place = document.getElementById("connection");
  place.textContent = open ? "live" : "reconnecting";
  place.className = open ? "live" : "lost";
  if (open && !page?.follows) page?.update?.({ all: true });  // others get what they miss with the first event
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  event.preventDefault();
  frame.go(link.getAttribute("href"));
});
window.addEventListener("popstate", () => open(true));

async function start() {
  await greet();
  await open(false);
  if (sessionStorage.getItem("automl-token")) restart = follow(changed, connected, () => page?.follows);
}

start();
