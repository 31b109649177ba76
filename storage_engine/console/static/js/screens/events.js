// Events of the cluster as a list, the newest first.

import { h } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { addressOf } from "../lib/router.js";
import { exactly, link, sentence, state } from "../lib/words.js";

const KINDS = {
  broker_gone: ["bad", "broker gone"],
  broker_back: ["good", "broker back"],
  leader: ["still", "new leader"],
  no_leader: ["bad", "no leader"],
  isr: ["still", "in-sync replicas"],
  controller: ["still", "controller"],
  topic_created: ["still", "topic created"],
  topic_deleted: ["still", "topic deleted"],
  state: ["still", "state"],
  client: ["warn", "seen by a client"],
};

export function eventList(empty) {
  return table({
    label: "Events",
    empty,
    key: (row) => [row.at_ms, row.kind, row.topic, row.partition, row.broker, row.epoch, row.source, row.words].join(" "),
    columns: [
      { id: "at", title: "When", cell: (row) => exactly(row.at_ms) },
      { id: "kind", title: "What", cell: (row) => state(...(KINDS[row.kind] ?? ["still", row.kind])) },
      { id: "where", title: "Where", cell: where },
      { id: "words", title: "In words", grow: true, cell: (row) => h("span", { class: "words" }, sentence(row.words)) },
      { id: "source", title: "Told by", wide: true, cell: toldBy },
    ],
  });
}

function where(row) {
  if (row.topic) {
    const name = row.partition === null || row.partition === undefined ? row.topic : `${row.topic}-${row.partition}`;
    return row.kind === "topic_deleted" ? h("span", { class: "data name" }, name) : link(addressOf(["topics", row.topic, "partitions"]), h("span", { class: "data name" }, name));
  }
  return row.broker === null || row.broker === undefined ? "–" : link(addressOf(["brokers", row.broker]), `broker ${row.broker}`);
}

function toldBy(row) {
  return row.observed_within_ms > 0 ? `${row.source}, within ${row.observed_within_ms / 1000} s` : (row.source ?? "–");
}
