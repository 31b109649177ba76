// What is asked of a topic's messages: the form, its parameters for the server, and for the address.

import { BadInput } from "../lib/api.js";
import { field, input, select } from "../lib/dialogs.js";
import { h } from "../lib/dom.js";

const TERMS = ["key", "value", "header", "path", "equals", "where"];

/** `search()` and `tail()` are called when it is sent. */
export function searchForm(topic, query, { search, tail }) {
  const isTyped = topic.schema !== null;
  const fromText = query.get("from") ?? "newest";
  const [fromKind, fromValue = ""] = fromText.split(/:(.*)/s);
  const from = select("from", [["newest", "Newest"], ["earliest", "Earliest"], ["offset", "Offset"], ["time", "Time"]], fromKind, showFrom);
  const offset = input("offset", { inputmode: "numeric", value: fromKind === "offset" ? fromValue : "" });
  const time = input("time", { type: "datetime-local", step: 1, value: fromKind === "time" ? localTime(Number(fromValue)) : "" });
  const partitions = input("partitions", { value: query.getAll("partition").join(",") || (query.get("partitions") ?? ""), placeholder: `all ${topic.partitions}` });
  const limit = select("limit", [[20, "20"], [50, "50"], [200, "200"], [500, "500"]], query.get("limit") ?? 50);
  const isolation = select("isolation", [["read_committed", "Committed"], ["read_uncommitted", "All"]], query.get("isolation") ?? "read_committed");
  const terms = Object.fromEntries(TERMS.map((name) => [name, input(name, { value: query.get(name) ?? "" })]));
  const columns = input("columns", { value: query.get("columns") ?? "", placeholder: "all" });
  const regex = h("input", { type: "checkbox", id: "regex", name: "regex", checked: query.get("regex") === "1" });
  const offsetField = field("Offset", offset);
  const timeField = field("Time", time);
  const start = h("button", { type: "submit", class: "primary" }, "Search");
  const follow = h("button", { type: "button", on: { click: tail } }, "Follow new records");
  const more = h(
    "details",
    { class: "terms", open: TERMS.some((name) => query.get(name)) },
    h("summary", {}, "Filter"),
    h(
      "div",
      { class: "form-row" },
      field("Key contains", terms.key),
      field("Value contains", terms.value),
      h("div", { class: "check" }, regex, h("label", { for: "regex" }, "as regular expressions")),
      field("Header", terms.header, "name, or name=part of its value"),
      field(isTyped ? "Column" : "JSON field", terms.path, isTyped ? "its name" : "$.order.id"),
      field("equals", terms.equals),
      isTyped ? field("Condition", terms.where, "fare > 10 AND tag = 'a'") : null,
      isTyped ? field("Columns", columns, "names with commas") : null,
    ),
  );
  showFrom();

  function showFrom() {
    offsetField.hidden = from.value !== "offset";
    timeField.hidden = from.value !== "time";
  }

  function fromParameter() {
    if (from.value === "offset") {
      if (!/^\d+$/.test(offset.value.trim())) throw new BadInput("Give the offset as a whole number.");
      return `offset:${offset.value.trim()}`;
    }
    if (from.value === "time") {
      const ms = new Date(time.value).getTime();
      if (Number.isNaN(ms)) throw new BadInput("Give the time from which on to read.");
      return `time:${ms}`;
    }
    return from.value;
  }

  function partitionNumbers() {
    const given = partitions.value.split(/[\s,]+/).filter((each) => each !== "");
    const wrong = given.find((each) => !/^\d+$/.test(each) || Number(each) >= topic.partitions);
    if (wrong !== undefined) throw new BadInput(`${topic.name} has no partition “${wrong}”: they are 0 to ${topic.partitions - 1}.`);
    return given;
  }

  function parameters() {
    const values = Object.fromEntries(TERMS.map((name) => [name, terms[name].value]));
    if (values.equals !== "" && values.path === "") throw new BadInput("Name the field that is to be equal to this.");
    return { from: fromParameter(), partition: partitionNumbers(), limit: limit.value, isolation: isolation.value, ...values, regex: regex.checked ? 1 : null, columns: columns.value };
  }

  const element = h(
    "form",
    { class: "search-form", role: "search", "aria-label": `Messages of ${topic.name}`, on: { submit: (event) => { event.preventDefault(); search(); } } },
    h("div", { class: "form-row" }, field("From", from), offsetField, timeField, field("Partitions", partitions), field("At most", limit), field("Records", isolation), h("div", { class: "form-buttons" }, start, follow)),
    more,
  );
  return {
    element,
    parameters,
    forAddress() {
      const { partition, ...others } = parameters();
      return { ...others, partitions: partition.join(","), from: others.from === "newest" ? null : others.from, limit: others.limit === "50" ? null : others.limit, isolation: others.isolation === "read_committed" ? null : others.isolation };
    },
    hasTerms: () => TERMS.some((name) => terms[name].value !== ""),
    running(isRunning) {
      follow.disabled = isRunning;
    },
  };
}

function localTime(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 19);
}
