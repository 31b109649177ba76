// One message in full: key, value in several forms, headers, its row, its batch, and where it came from
// if it is a dead letter.

import { get, messageOf, path, urlOf } from "../lib/api.js";
import { openDialog, select } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, moment } from "../lib/format.js";
import { indented, members } from "../lib/json_text.js";
import { addressOf } from "../lib/router.js";
import { facts, link } from "../lib/words.js";
import { batchWords } from "./batches.js";
import { cellOf } from "./message_rows.js";
import { readSentence } from "./schema_words.js";

const MOST_FIELDS = 500;

export function showMessage(topic, row) {
  const place = h("div", { class: "message" }, h("p", {}, "Reading the message …"));
  const stopper = new AbortController();
  const where = path("topics", topic.name, "messages", row.partition, row.offset);
  openDialog(`${topic.name}-${row.partition}, offset ${count(row.offset)}`, place, { wide: true, onClose: () => stopper.abort() });
  get(where, {}, stopper.signal).then(
    (message) => fill(place, whole(topic, message, where)),
    (error) => error.code !== "ABORTED" && fill(place, h("p", { class: "form-problem", role: "alert" }, messageOf(error))),
  );
}

function whole(topic, message, where) {
  return [
    facts([
      ["Partition", count(message.partition)],
      ["Offset", count(message.offset)],
      ["Time", h("span", { class: "data" }, `${moment(message.timestamp_ms)} (${message.timestamp_type === "append" ? "of the broker's append" : "of the producer"})`)],
    ]),
    message.dead_letter ? deadLetter(message.dead_letter) : null,
    message.row !== null && message.row !== undefined ? rowTable(topic, message) : null,
    part("Key", message.key, `${where}/raw`, "key", "There is no key."),
    part("Value", message.value, `${where}/raw`, "value", "There is no value: this is a tombstone, which deletes its key in a compacted topic."),
    headerTable(message),
    message.batch ? h("section", {}, h("h3", {}, "Its batch"), batchWords(message.batch), link(addressOf(["topics", topic.name, "batches"], { partition: message.partition, offset: message.batch.base_offset }), "Batches from here on")) : null,
  ];
}

function deadLetter(letter) {
  return h(
    "section",
    { class: "dead-letter" },
    h("h3", {}, "A dead letter"),
    h("p", {}, "Rejected: ", h("span", { class: "data name" }, letter.reason ?? "no reason given")),
    letter.topic === null || letter.topic === undefined
      ? h("p", {}, "Its headers name no origin: it can't be replayed.")
      : h("p", {}, "It came from ", link(addressOf(["topics", letter.topic], { from: `offset:${letter.offset}`, partitions: letter.partition, limit: 20 }), `${letter.topic}-${letter.partition}, offset ${letter.offset}`), letter.timestamp_ms ? `, written ${moment(letter.timestamp_ms)}` : "", "."),
  );
}

function rowTable(topic, message) {
  const columns = message.columns ?? topic.schema?.columns ?? [];
  return h(
    "section",
    {},
    h("h3", {}, "Row"),
    h(
      "div",
      { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Row" },
      h("table", {}, h("thead", {}, h("tr", {}, ["Column", "Type", "Value"].map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, message.row.map((value, index) => h("tr", {}, h("th", { scope: "row" }, columns[index]?.name ?? String(index)), h("td", { class: "data" }, columns[index]?.type ?? "–"), h("td", {}, cellOf(value, message.row_cut?.includes(index))))))),
    ),
  );
}

function part(title, value, rawPath, name, none) {
  if (value === null || value === undefined) return h("section", {}, h("h3", {}, title), h("p", { class: "note" }, none));
  const place = h("div");
  const forms = formsOf(value);
  const form = select(`form-${name}`, forms.map(([id, label]) => [id, label]), forms[0][0], draw);
  form.setAttribute("aria-label", `Show the ${title.toLowerCase()} as`);

  function draw() {
    fill(place, forms.find(([id]) => id === form.value)[2]());
  }

  draw();
  return h(
    "section",
    {},
    h("div", { class: "block-head" }, h("h3", {}, title), h("span", { class: "note" }, describe(value)), forms.length > 1 ? form : null, value.bytes > 0 ? h("a", { href: urlOf(rawPath, { part: name }), download: "" }, "Download") : null),
    value.schema ? readSentence(value.schema) : null,
    place,
  );
}

function describe(value) {
  if (value.raw) return `${bytes(value.bytes)}${value.cut ? ", of which the beginning is shown as JSON" : ", shown as JSON"}`;
  const kind = { text: "text", json: "JSON", binary: value.invalid_utf8 ? "bytes that are no UTF-8" : "bytes" }[value.kind];
  return `${bytes(value.bytes)} of ${kind}${value.cut ? ", of which the beginning is shown" : ""}`;
}

function formsOf(value) {
  const forms = [];
  const nice = value.kind === "binary" ? null : (indented(value.text) ?? value.pretty);
  if (nice !== null && nice !== undefined) forms.push(["indented", "Indented", () => textBlock(nice)]);
  const fields = value.kind === "json" ? members(value.text) : null;
  if (fields !== null && fields.size > 0 && fields.size <= MOST_FIELDS) forms.push(["fields", "Fields", () => fieldTable(fields)]);
  forms.push(["as-is", value.kind === "binary" ? "Hexadecimal" : "As it is", () => textBlock(value.text)]);
  if (value.raw) forms.push(["raw", "Bytes as they are", () => textBlock(value.raw.text)]);
  return forms;
}

function textBlock(text) {
  return h("pre", { class: "text-block", tabindex: 0, role: "region", "aria-label": "Text" }, text);
}

function fieldTable(fields) {
  return h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Fields" }, h("table", {}, h("tbody", {}, [...fields].map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "data name" }, text))))));
}

function headerTable(message) {
  if (message.headers.length === 0) return null;
  return h(
    "section",
    {},
    h("h3", {}, "Headers"),
    h(
      "div",
      { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Headers" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), h("th", { scope: "col" }, "Value"))), h("tbody", {}, message.headers.map((each) => h("tr", {}, h("th", { scope: "row", class: "data" }, each.key), h("td", { class: "data name" }, each.value === null ? h("span", { class: "note" }, "null") : each.value.text))))),
    ),
    message.headers_cut ? h("p", { class: "note" }, `${count(message.headers_cut)} more are not shown.`) : null,
  );
}
