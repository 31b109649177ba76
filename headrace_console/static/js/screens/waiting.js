// What a `read_committed` reader waits for, and why: open transactions before which its reading stops.

import { h } from "../lib/dom.js";
import { count, duration } from "../lib/format.js";
import { pagedList } from "../lib/paged.js";
import { table } from "../lib/table.js";
import { addressOf } from "../lib/router.js";
import { link, sentence } from "../lib/words.js";

const NOTE =
  "A reader with read_committed gets no record behind the first one of a transaction that is still open, so that it sees all of a transaction or nothing. Each line is a partition in which such records wait.";

export function waitingColumns() {
  return [
    { id: "partition", title: "Partition", cell: (row) => link(addressOf(["topics", row.topic, "partitions"]), h("span", { class: "data name" }, `${row.topic}-${row.partition}`)) },
    { id: "waiting", title: "Waiting", kind: "number", cell: (row) => count(row.waiting) },
    { id: "offsets", title: "Readable to", kind: "number", wide: true, cell: (row) => count(row.stable_offset) },
    { id: "age", title: "For", kind: "number", cell: (row) => duration(row.age_ms) },
    { id: "words", title: "Why", grow: true, cell: (row) => h("span", { class: "words" }, sentence(row.words)) },
    { id: "who", title: "Whose", wide: true, cell: whose },
  ];
}

function whose(row) {
  if (row.sink) return h("span", {}, "sink ", h("span", { class: "data name" }, row.sink.sink), row.sink.batch === null || row.sink.batch === undefined ? "" : `, micro-batch ${row.sink.batch}`);
  if (row.transactional_id) return h("span", { class: "data name" }, row.transactional_id);
  return row.producer_id === null || row.producer_id === undefined ? "–" : h("span", { class: "data" }, `producer ${row.producer_id}, epoch ${row.producer_epoch}`);
}

export const waitingKey = (row) => `${row.topic}-${row.partition}-${row.producer_id}`;

/** As a list of its own. */
export function waitingList(where, empty) {
  const list = pagedList({ where, label: "Readers that wait", noun: "partition", empty, key: waitingKey, everyMs: 3000, canFind: false, columns: waitingColumns() });
  return { element: h("div", {}, h("p", { class: "note" }, NOTE), list.element), stop: list.stop };
}

/** Of rows that came with something else. */
export function waitingTable(empty) {
  return table({ label: "Readers that wait", empty, key: waitingKey, columns: waitingColumns() });
}
