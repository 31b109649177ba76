// One topic: what it is, and its messages, partitions, batches, settings, and what its readers wait for.

import { channel } from "../charts/channel.js";
import { get, path } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, short } from "../lib/format.js";
import { keepAsking } from "../lib/live.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { button, facts, freshness, link, screenHead, screenOfOne, state, tabs } from "../lib/words.js";
import { batchList } from "./batches.js";
import { messageSearch } from "./messages.js";
import { produceOne } from "./produce.js";
import { subjectLink } from "./schema_words.js";
import { settingColumns } from "./settings.js";
import { alterTopic, deleteTopic } from "./topic_changes.js";
import { waitingList } from "./waiting.js";

const TABS = {
  messages: "Messages",
  partitions: "Partitions",
  batches: "Batches",
  waiting: "Waiting readers",
  settings: "Settings",
};

export function openTopic(name, tab, context) {
  const fresh = freshness();
  const badges = h("span", { class: "badges" });
  const told = h("div");
  const place = h("div", { class: "tab-place" });
  const parts = Object.entries(TABS).map(([id, title]) => [id, title, addressOf(["topics", name, id])]);
  let part = null;
  let topic = null;
  let subjects = null;

  const asking = keepAsking((signal) => get(path("topics", name), {}, signal), {
    everyMs: 5000,
    failed(error, since) {
      fresh.failed(error, since);
      if (error?.status === 404) screen.missing();
    },
    show(answer) {
      topic = answer;
      screen.found();
      fresh.shown(answer.as_of_ms, answer.unanswered);
      fill(badges, badgesOf(answer));
      drawFacts();
      if (part === null) {
        part = (PARTS[tab] ?? PARTS.messages)(answer, context);
        fill(place, part.element);
      } else part.topicTold?.(answer);
    },
  });

  // A registry that does not answer is told where its subjects are shown.
  const askingSubjects = context.session.features?.schemas
    ? keepAsking((signal) => get(path("topics", name, "subjects"), {}, signal), {
        everyMs: 15_000,
        failed: () => {},
        show(answer) {
          subjects = answer.rows;
          if (topic !== null) drawFacts();
        },
      })
    : null;

  function drawFacts() {
    fill(told, topicFacts(topic, subjects));
  }

  const actions = context.readOnly
    ? []
    : [
        button("Produce a record", () => topic && produceOne(topic, (made) => part?.produced?.(made))),
        button("Change", () => topic && alterTopic(topic, () => asking.again())),
        button("Delete", () => topic && deleteTopic(topic), { kind: "danger-quiet" }),
      ];
  const screen = screenOfOne({
    words: "There is no topic of this name, or you may not see it.",
    all: "All topics",
    address: "#/topics",
    head: screenHead(name, { above: [["Topics", "#/topics"]], actions, badge: badges, fresh: fresh.element }),
    fresh: fresh.element,
    content: [told, tabs("Pages of the topic", parts, tab in TABS ? tab : "messages"), place],
  });
  return {
    title: `${name} – topic`,
    element: screen.element,
    close() {
      asking.stop();
      askingSubjects?.stop();
      fresh.stop();
      part?.stop?.();
    },
  };
}

const PARTS = {
  messages: (topic, context) => messageSearch(topic, context),
  partitions: (topic) => partitionList(topic),
  batches: (topic, context) => batchList(topic, context),
  waiting: (topic) => waitingList(path("topics", topic.name, "waiting"), `Nothing of ${topic.name} waits: read_committed can read every record.`),
  settings: (topic) => settingTable(topic),
};

function badgesOf(topic) {
  return [
    topic.schema === null ? null : h("span", { class: "badge" }, "typed"),
    topic.internal ? h("span", { class: "badge" }, "internal") : null,
    topic.dead_letters ? link(addressOf(["dead-letters", topic.name]), h("span", { class: "badge warn" }, "dead letters")) : null,
  ];
}

function topicFacts(topic, subjects) {
  return facts([
    ["Partitions", count(topic.partitions)],
    ["Replicas of a partition", count(topic.replication_factor)],
    ["Records", count(topic.records)],
    ["Size", bytes(topic.size_bytes)],
    ["Written", topic.records_per_s === null ? null : `${short(topic.records_per_s)} records/s`],
    ["Topic id", topic.topic_id === null ? null : h("span", { class: "data" }, topic.topic_id)],
    ["Groups", topic.groups?.length ? topic.groups.slice(0, 8).map((each, index) => [index > 0 ? ", " : null, link(addressOf(["groups", each]), each)]) : null],
    ["Subjects", subjects?.length ? subjects.map((each, index) => [index > 0 ? ", " : null, subjectLink(each.subject, each.version)]) : null],
    ["Schema", topic.schema === null ? null : schemaOf(topic.schema)],
  ]);
}

function schemaOf(schema) {
  return h("span", { class: "data name" }, `version ${schema.version}: ${schema.ddl}`, schema.key?.length ? ` · key ${schema.key.join(", ")}` : "");
}

function settingTable(topic) {
  const rows = table({ label: `Settings of ${topic.name}`, columns: settingColumns(), key: (row) => row.name, empty: "The brokers did not send the settings.", order: { id: "source", falling: false } });
  const note = h("p", { class: "note" }, "Settings of the topic itself come first; the others are defaults of the brokers.");
  rows.update(topic.settings ?? []);
  return { element: h("div", {}, note, rows.element), topicTold: (answer) => rows.update(answer.settings ?? []) };
}

function partitionList(topic) {
  let longest = 0;
  const list = pagedList({
    where: path("topics", topic.name, "partitions"),
    label: `Partitions of ${topic.name}`,
    noun: "partition",
    empty: "The topic has no partitions.",
    key: (row) => row.partition,
    canFind: false,
    order: { id: "partition", falling: false },
    onAnswer(answer) {
      const now = Math.max(0, ...answer.rows.map((row) => Number(row.end_offset ?? 0) - Number(row.start_offset ?? 0)));
      if (now !== longest) longest = now;
    },
    columns: [
      { id: "partition", title: "Partition", kind: "number", sort: true, cell: (row) => String(row.partition) },
      { id: "leader", title: "Leader", cell: (row) => (row.leader === null ? state("bad", "none") : link(addressOf(["brokers", row.leader]), `broker ${row.leader}`)) },
      { id: "replicas", title: "Replicas", cell: replicas, hint: "A ring stands for a replica that is not in sync" },
      { id: "records", title: "Records", kind: "number", sort: true, cell: (row) => (row.end_offset === null || row.start_offset === null ? "–" : count(Number(row.end_offset) - Number(row.start_offset))) },
      { id: "channel", title: "Log", cell: (row) => channel(row, longest), hint: "Filled: can be read. Striped: waits for a transaction" },
      { id: "start", title: "From", kind: "number", wide: true, cell: (row) => count(row.start_offset) },
      { id: "end", title: "To", kind: "number", cell: (row) => count(row.end_offset), hint: "The high watermark: the offset of the next record" },
      { id: "waiting", title: "Waiting", kind: "number", sort: true, cell: (row) => (row.waiting ? state("warn", count(row.waiting)) : count(row.waiting)), hint: "Records behind the last stable offset, which read_committed does not see yet" },
      { id: "size_bytes", title: "Size", kind: "number", sort: true, cell: (row) => bytes(row.size_bytes) },
      { id: "rate", title: "Records/s", kind: "number", cell: (row) => short(row.records_per_s) },
      { id: "epoch", title: "Epoch", kind: "number", wide: true, cell: (row) => count(row.leader_epoch), hint: "Leader epoch: how often the leader has changed" },
    ],
  });
  return { element: list.element, stop: list.stop };
}

function replicas(row) {
  const isr = new Set(row.isr);
  const offline = new Set(row.offline);
  const out = row.replicas.filter((id) => !isr.has(id));
  const label = `Replicas on ${row.replicas.join(", ")}; ${out.length === 0 ? "all in sync" : `not in sync: ${out.join(", ")}`}`;
  return h(
    "span",
    { class: "replicas", role: "img", "aria-label": label, title: label },
    row.replicas.map((id) => h("span", { class: `replica ${isr.has(id) ? "in" : offline.has(id) ? "gone" : "out"}` }, String(id))),
  );
}
