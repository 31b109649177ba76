// Messages as lines, as a table of the fields of their JSON, or as the rows of a typed topic.

import { select } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { bytes, clock, count, iso, moment } from "../lib/format.js";
import { members } from "../lib/json_text.js";
import { table } from "../lib/table.js";
import { showMessage } from "./message.js";
import { readBadge } from "./schema_words.js";

const MOST_FIELDS = 14;
const LOOKED_AT = 50;
const SHOWN_TEXT = 300;

export function messageRows(topic, context) {
  const place = h("div");
  const view = select("view", [["lines", "Lines"], ["fields", "Fields of JSON"]], "lines", () => draw(true));
  const bar = h("div", { class: "list-bar", hidden: true }, h("label", {}, "Show as ", view));
  let rows = [];
  let columns = null;
  let shape = null;
  let current = null;
  let isOver = false;

  /** Makes the table anew only when its columns change. */
  function draw() {
    const fields = columns === null && view.value === "fields" ? fieldsOf(rows) : null;
    const wanted = JSON.stringify([columns, fields]);
    if (current === null || wanted !== shape) {
      shape = wanted;
      current = table({ label: `Messages of ${topic.name}`, empty: () => (isOver ? "No record matches." : ""), key: keyOf, columns: [...places(topic, context), ...contents(topic, columns, fields)] });
      fill(place, current.element);
    }
    current.update(rows);
    bar.hidden = columns !== null || !rows.some((row) => row.value?.kind === "json");
  }

  return {
    element: h("div", { class: "message-rows" }, bar, place),
    update(given, givenColumns, { newestFirst }) {
      isOver = false;
      rows = newestFirst ? [...given].sort((a, b) => b.timestamp_ms - a.timestamp_ms || b.partition - a.partition || Number(b.offset) - Number(a.offset)) : given;
      columns = givenColumns ?? null;
      draw();
    },
    finished() {
      isOver = true;
      draw();
    },
  };
}

const keyOf = (row) => `${row.partition}-${row.offset}`;

function places(topic, context) {
  return [
    {
      id: "offset", title: "Offset", kind: "number", sort: (row) => Number(row.offset),
      cell: (row) => h("button", { type: "button", class: "as-link data", "aria-label": `Open offset ${row.offset} of partition ${row.partition}`, on: { click: () => showMessage(topic, row, context) } }, count(row.offset)),
    },
    { id: "partition", title: "Part.", kind: "number", hint: "Partition", sort: (row) => row.partition, cell: (row) => String(row.partition) },
    { id: "time", title: "Time", sort: (row) => row.timestamp_ms, cell: (row) => h("time", { datetime: iso(row.timestamp_ms), title: moment(row.timestamp_ms), class: "data" }, clock(row.timestamp_ms)) },
  ];
}

function contents(topic, columns, fields) {
  if (columns !== null) {
    const widest = columns.findLastIndex((column) => !isNumber(column.type));
    return columns.map((column, index) => ({
      id: `column-${index}`, title: column.name, hint: column.type + (column.key ? ", key" : ""), kind: isNumber(column.type) ? "number" : null,
      grow: index === widest,
      cell: (row) => (row.row === null || row.row === undefined ? index === 0 ? h("span", { class: "note" }, "deleted") : "–" : cellOf(row.row[index], row.row_cut?.includes(index))),
    }));
  }
  const key = { id: "key", title: "Key", cell: (row) => valueLine(row.key, "no key", `${topic.name}-key`) };
  if (fields !== null) {
    return [key, ...fields.map((name) => ({ id: `field-${name}`, title: name, cell: (row) => fieldCell(row, name) }))];
  }
  return [key, { id: "value", title: "Value", grow: true, cell: (row) => valueLine(row.value, "tombstone", `${topic.name}-value`) }, { id: "headers", title: "Headers", wide: true, cell: headerLine }];
}

function isNumber(type) {
  return /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/i.test(type);
}

/** One cell of a typed row, or of anything that JSON can hold. */
export function cellOf(value, isCut = false) {
  if (value === null || value === undefined) return h("span", { class: "note" }, "null");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return h("span", { class: "data name" }, text, isCut ? h("span", { class: "note" }, " cut") : null);
}

/** A key or value in a line: what it is, its size where that is more than is shown, and its text. `own`: the
 * subject by whose schemas it is expected to be read. */
function valueLine(value, none, own) {
  if (value === null) return h("span", { class: "note" }, none);
  const text = beginning(value.text, SHOWN_TEXT);
  return h(
    "span",
    { class: "value-line" },
    value.schema ? readBadge(value.schema, own) : null,
    value.kind === "binary" ? h("span", { class: "badge" }, value.invalid_utf8 ? "no UTF-8" : "bytes") : null,
    value.cut || text !== value.text ? h("span", { class: "badge" }, bytes(value.bytes)) : null,
    value.schema?.why ? h("span", { class: "warn-text" }, `${value.schema.why} `) : null,
    h("span", { class: `data name ${value.kind}` }, value.bytes === 0 ? h("span", { class: "note" }, "empty") : text),
  );
}

const beginning = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

function headerLine(row) {
  if (row.headers.length === 0) return "–";
  const more = row.headers.length - 3 + (row.headers_cut ?? 0);
  return h(
    "span",
    { class: "headers" },
    row.headers.slice(0, 3).map((each) => h("span", { class: "header" }, h("span", { class: "header-name" }, each.key), h("span", { class: "data" }, each.value === null ? "null" : beginning(each.value.text, 60)))),
    more > 0 ? h("span", { class: "note" }, `and ${count(more)} more`) : null,
  );
}

/** The fields that most of the first values have, in the order of the first that has them. */
function fieldsOf(rows) {
  const seen = new Map();
  for (const row of rows.slice(0, LOOKED_AT)) {
    for (const name of fieldMap(row)?.keys() ?? []) seen.set(name, (seen.get(name) ?? 0) + 1);
  }
  const names = [...seen.keys()];
  return names.sort((a, b) => seen.get(b) - seen.get(a) || 0).slice(0, MOST_FIELDS);
}

const maps = new WeakMap();

function fieldMap(row) {
  if (!maps.has(row)) maps.set(row, row.value?.kind === "json" ? members(row.value.text) : null);
  return maps.get(row);
}

function fieldCell(row, name) {
  const fields = fieldMap(row);
  if (fields === null) return name === undefined ? "–" : h("span", { class: "note" }, row.value === null ? "tombstone" : "no object");
  if (!fields.has(name)) return "–";
  const text = fields.get(name);
  return h("span", { class: "data name" }, beginning(text, SHOWN_TEXT));
}
