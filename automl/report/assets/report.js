// The report: the page of one sweep, whose data is in the file.
import { inside } from "./api.js";
import { sweepPage } from "./sweep.js";

window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
sweepPage({ title() {} }, inside.page.name).then((page) => {
  document.getElementById("main").replaceChildren(...page.content);
  document.body.dataset.ready = "report";
});
