// All topics that one may see.

import { h } from "../lib/dom.js";
import { bytes, count, short } from "../lib/format.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { button, freshness, link, screenHead, state } from "../lib/words.js";
import { createTopic } from "./topic_changes.js";

export function openTopics({ session, readOnly }) {
  const fresh = freshness();
  const internal = h("input", { type: "checkbox", id: "internal", on: { change: () => list.again() } });
  const list = pagedList({
    where: "/topics",
    label: "Topics",
    noun: "topic",
    empty: "There is no topic yet.",
    key: (row) => row.name,
    fresh,
    order: { id: "name", falling: false },
    extra: () => ({ internal: internal.checked ? 1 : 0 }),
    controls: [h("div", { class: "check" }, internal, h("label", { for: "internal" }, "Show internal topics"))],
    columns: topicColumns(),
  });
  return {
    title: "Topics",
    element: h(
      "div",
      {},
      screenHead("Topics", {
        fresh: fresh.element,
        actions: readOnly ? [] : [button("Create a topic", () => createTopic(session, () => list.again()), { kind: "primary" })],
      }),
      list.element,
    ),
    close() {
      list.stop();
      fresh.stop();
    },
  };
}

function topicColumns() {
  return [
    {
      id: "name", title: "Topic", sort: true,
      cell: (row) => h("span", {}, link(addressOf(["topics", row.name]), h("span", { class: "data name" }, row.name)), row.typed ? h("span", { class: "badge" }, "typed") : null, row.internal ? h("span", { class: "badge" }, "internal") : null),
    },
    { id: "state", title: "State", cell: topicState },
    { id: "partitions", title: "Partitions", kind: "number", sort: true, cell: (row) => count(row.partitions) },
    { id: "replication", title: "Replicas", kind: "number", wide: true, cell: (row) => count(row.replication_factor) },
    { id: "records", title: "Records", kind: "number", sort: true, cell: (row) => count(row.records) },
    { id: "size_bytes", title: "Size", kind: "number", sort: true, cell: (row) => bytes(row.size_bytes) },
    { id: "records_per_s", title: "Records/s", kind: "number", sort: true, cell: (row) => short(row.records_per_s) },
    { id: "bytes_per_s", title: "Bytes/s", kind: "number", wide: true, cell: (row) => bytes(row.bytes_per_s) },
  ];
}

function topicState(row) {
  if (row.without_leader > 0) return state("bad", `${count(row.without_leader)} without a leader`);
  if (row.under_replicated > 0) return state("warn", `${count(row.under_replicated)} under-replicated`);
  return state("good", "in sync");
}
