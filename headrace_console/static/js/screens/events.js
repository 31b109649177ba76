// Events of the cluster as a list, the newest first. When a broker goes, the same happens to many
// partitions at once: events of a kind that come together are one line, which can be opened.

import { h } from "../lib/dom.js";
import { count, duration } from "../lib/format.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { asSentence, exactly, link, sentence, state } from "../lib/words.js";

const TOGETHER_MS = 2000;
const MOST_OPENED = 200;

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

/** Gives `{element, update(events)}`. */
export function eventList(empty) {
  const rows = table({
    label: "Events",
    empty,
    key: (row) => [row.at_ms, row.kind, row.topic, row.partition, row.broker, row.epoch, row.source, row.words].join(" "),
    columns: [
      { id: "at", title: "When", cell: (row) => exactly(row.at_ms) },
      { id: "kind", title: "What", cell: (row) => state(...(KINDS[row.kind] ?? ["still", row.kind])) },
      { id: "where", title: "Where", cell: where },
      { id: "words", title: "Description", grow: true, cell: words },
      { id: "source", title: "Source", wide: true, cell: toldBy },
    ],
  });
  return { element: rows.element, update: (events) => rows.update(together(events)) };
}

/** Each event with `others`: those of its kind, about other partitions, within two seconds before. */
function together(events) {
  const leading = new Map();
  const found = [];
  for (const event of events) {
    const first = leading.get(event.kind);
    if (event.topic && first && first.at_ms - event.at_ms <= TOGETHER_MS) {
      first.others.push(event);
      first.more += 1 + (event.left_out ?? 0);
      continue;
    }
    const row = { ...event, others: [], more: event.left_out ?? 0 };
    if (event.topic) leading.set(event.kind, row);
    found.push(row);
  }
  return found;
}

function words(row) {
  if (row.more === 0) return h("span", { class: "words" }, inWords(row));
  return h(
    "div",
    { class: "words" },
    inWords(row),
    h(
      "details",
      {},
      h("summary", {}, `and ${count(row.more)} more like it within 2 s`),
      h("ul", { class: "plain" }, row.others.slice(0, MOST_OPENED).map((each) => h("li", {}, inWords(each))), row.more > row.others.length ? h("li", {}, link("#/timeline", "All of them")) : null),
    ),
  );
}

/** What a broker's log says in its own terms, as a sentence; other lines of it as they are. */
function inWords(row) {
  const name = `${row.topic}-${row.partition}`;
  if (!/^broker \d+$/.test(row.source ?? "")) return sentence(asSentence(row.words));
  if (row.kind === "leader") return `Broker ${row.after} leads ${name} now, in leader epoch ${row.epoch}.`;
  if (row.kind === "isr") return `Brokers ${String(row.after).replace(/[[\]]/g, "")} are in sync of ${name} now.`;
  return h("code", {}, row.words);
}

function where(row) {
  if (row.topic) {
    const name = row.partition === null || row.partition === undefined ? row.topic : `${row.topic}-${row.partition}`;
    const shown = h("span", { class: "data name" }, name);
    return row.kind === "topic_deleted" ? shown : link(addressOf(["topics", row.topic, "partitions"]), shown);
  }
  return row.broker === null || row.broker === undefined ? "–" : link(addressOf(["brokers", row.broker]), `broker ${row.broker}`);
}

function toldBy(row) {
  return row.observed_within_ms > 0 ? `${row.source}, within ${duration(row.observed_within_ms)}` : (row.source ?? "–");
}
