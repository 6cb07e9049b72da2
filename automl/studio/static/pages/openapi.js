// The API: every verb with its body, its answer and a line to copy, from the OpenAPI document.
import { h, section } from "../dom.js";
import { empty, shell } from "../parts.js";

export async function openapiPage(frame) {
  frame.title("API", ["Sweeps", "/"], ["API", null]);
  const reply = await fetch("/openapi.json");
  if (!reply.ok) return { content: [empty("The document cannot be read")] };
  const found = await reply.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(found.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const tag = one.tags.join(", ");
      groups.set(tag, [...(groups.get(tag) || []), operation(found, path, method, one)]);
    }
  }
  return { content: [h("div", { class: "page api" }, h("h1", {}, "API"), h("p", {}, found.info.description), h("p", {}, h("a", { href: "/openapi.json", target: "_blank", rel: "noopener" }, "openapi.json"), ` (OpenAPI ${found.openapi}) describes it to programs.`),
    [...groups].map(([tag, operations]) => section(`${tag[0].toUpperCase()}${tag.slice(1)}`, { class: "panel" }, operations)))] };
}

function operation(found, path, method, one) {
  const body = schemaOf(found, one.requestBody);
  const answer = schemaOf(found, one.responses["200"]);
  const example = `curl -X ${method.toUpperCase()} ${location.origin}${path.replace(/[{]sweep[}]/, "SWEEP").replace(/[{]trial[}]/, "N")} -H "Authorization: Bearer $TOKEN"${body ? ` -H "Content-Type: application/json" -d '${JSON.stringify(exampleOf(body))}'` : ""}`;
  return h("details", { id: one.operationId }, h("summary", {}, h("b", {}, method.toUpperCase()), " ", h("code", {}, path), h("span", { class: "soft" }, ` ${one.summary}`)),
    body ? [h("h3", {}, "Body"), fields(found, body, one.operationId)] : null,
    answer?.properties ? [h("h3", {}, "Answer"), fields(found, answer, one.operationId)] : null,
    h("h3", {}, "Errors"), h("ul", {}, Object.entries(one.responses).filter(([status]) => status !== "200").map(([status, { description }]) => h("li", {}, `${status}: ${description}`))),
    shell(example));
}

function schemaOf(found, content) {
  return resolved(found, content?.content?.["application/json"]?.schema);
}

function resolved(found, schema) {
  return schema?.$ref ? found.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function fields(found, schema, operation) {
  const required = new Set(schema.required || []);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of ${schema.title}, ${operation}` }, h("p", { class: "soft" }, schema.description), h("table", { class: "compare" }, h("thead", {}, h("tr", {}, ["Field", "Type", "Meaning"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, Object.entries(schema.properties || {}).map(([key, one]) => h("tr", {}, h("th", { scope: "row" }, key, required.has(key) ? h("span", { class: "soft" }, " (needed)") : null), h("td", {}, kind(found, one)), h("td", {}, one.description || ""))))));
}

function kind(found, schema) {
  if (schema.$ref) return Object.keys(resolved(found, schema).properties || {}).map((key) => `{${key}}`).join(" ");
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => kind(found, one)))].join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(", ");
  if (schema.type === "array") return `list of ${schema.items ? kind(found, schema.items) : "anything"}`;
  if (schema.type === "object") return schema.additionalProperties?.type || schema.additionalProperties?.anyOf ? `object of ${kind(found, schema.additionalProperties)}` : "object";
  return schema.type || "anything";
}

function exampleOf(schema) {
  const values = { step: 1, metrics: { loss: 0.5 }, params: { lr: 0.01 }, failure: "out_of_memory", trials: 60, star: true, limits: { lr: { low: 0.001, high: 0.01 } }, lease: 600 };
  return Object.fromEntries(Object.keys(schema.properties).filter((key) => key in values).map((key) => [key, values[key]]));
}
