// Consumer groups: who is in them, how far they are behind, and setting their offsets anew.

import { get, path } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { count, duration, many } from "../lib/format.js";
import { keepAsking } from "../lib/live.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { button, facts, freshness, link, screenHead, screenOfOne, section, state } from "../lib/words.js";
import { deleteGroup, resetOffsets } from "./group_changes.js";

const STATES = {
  Stable: ["good", "stable"],
  Empty: ["still", "no members"],
  Dead: ["bad", "gone"],
  PreparingRebalance: ["warn", "members join"],
  CompletingRebalance: ["warn", "partitions are assigned"],
  Assigning: ["warn", "partitions are assigned"],
  Reconciling: ["warn", "members hand over"],
};

const groupState = (value) => state(...(STATES[value] ?? ["still", value ?? "unknown"]));

export function openGroups() {
  const fresh = freshness();
  const list = pagedList({
    where: "/groups",
    label: "Groups",
    noun: "group",
    empty: "There is no group: no consumer has committed offsets yet. A Spark query shows here with the option group.id or groupIdPrefix.",
    key: (row) => row.group,
    fresh,
    order: { id: "name", falling: false },
    columns: [
      { id: "name", title: "Group", sort: true, cell: (row) => link(addressOf(["groups", row.group]), h("span", { class: "data name" }, row.group)) },
      { id: "state", title: "State", sort: true, cell: (row) => groupState(row.state) },
      { id: "type", title: "Type", sort: true, wide: true, cell: (row) => row.group_type, hint: "The protocol of its members: in a classic group one of them assigns partitions, in a consumer group the brokers" },
      { id: "members", title: "Members", kind: "number", sort: true, cell: (row) => count(row.members) },
      { id: "topics", title: "Topics", kind: "number", wide: true, cell: (row) => count(row.topics) },
      { id: "lag", title: "Lag", kind: "number", sort: true, cell: (row) => count(row.lag), hint: "Records that the group has not read yet" },
      { id: "lag_ms", title: "Behind", kind: "number", cell: (row) => duration(row.lag_ms), hint: "Age of the oldest record that the group has not read" },
      { id: "coordinator", title: "Coordinator", kind: "number", wide: true, cell: (row) => (row.coordinator === null ? "–" : `broker ${row.coordinator}`) },
    ],
  });
  return {
    title: "Groups",
    element: h("div", {}, screenHead("Groups", { fresh: fresh.element }), list.element),
    close() {
      list.stop();
      fresh.stop();
    },
  };
}

export function openGroup(name, { readOnly }) {
  const fresh = freshness();
  const told = h("div");
  const members = table({ label: `Members of ${name}`, empty: "The group has no members now.", key: (row) => row.member_id, columns: memberColumns() });
  const partitions = table({ label: `Partitions that ${name} reads`, empty: "The group has no offsets and no partitions.", key: (row) => `${row.topic}-${row.partition}`, order: { id: "lag", falling: true }, columns: partitionColumns() });
  let group = null;
  const asking = keepAsking((signal) => get(path("groups", name), {}, signal), {
    everyMs: 3000,
    failed(error, since) {
      fresh.failed(error, since);
      if (error?.status === 404) screen.missing();
    },
    show(answer) {
      group = answer;
      screen.found();
      fresh.shown(answer.as_of_ms, answer.unanswered);
      fill(told, groupFacts(answer));
      members.update(answer.members);
      partitions.update(answer.partitions);
    },
  });
  const actions = readOnly
    ? []
    : [
        button("Reset offsets", () => group && resetOffsets(group, () => asking.again())),
        button("Delete", () => group && deleteGroup(group), { kind: "danger-quiet" }),
      ];
  const screen = screenOfOne({
    words: "There is no group of this name, or you may not see it.",
    all: "All groups",
    address: "#/groups",
    head: screenHead(name, { above: [["Groups", "#/groups"]], actions, fresh: fresh.element }),
    fresh: fresh.element,
    content: [told, section("Partitions", {}, partitions.element), section("Members", {}, members.element)],
  });
  return {
    title: `${name} – group`,
    element: screen.element,
    close() {
      asking.stop();
      fresh.stop();
    },
  };
}

function groupFacts(group) {
  return facts([
    ["State", groupState(group.state)],
    ["Type", group.group_type],
    ["Epoch", group.epoch === null ? null : epochs(group)],
    ["Members", count(group.members.length)],
    ["Lag", group.lag === null ? "–" : many(group.lag, "record")],
    ["Behind", duration(group.lag_ms)],
    ["Assignor", group.protocol || null],
    ["Coordinator", group.coordinator === null ? null : link(addressOf(["brokers", group.coordinator]), `broker ${group.coordinator}`)],
  ]);
}

/** The partitions of a group are assigned anew for each of its epochs. */
function epochs(group) {
  const assigned = group.assignment_epoch === group.epoch ? "" : `, assigned for ${count(group.assignment_epoch)}`;
  return `${count(group.epoch)}${assigned}`;
}

function memberColumns() {
  return [
    { id: "client", title: "Client", sort: (row) => row.client_id, cell: (row) => h("span", { class: "data name" }, row.client_id, row.instance_id ? ` (static: ${row.instance_id})` : "") },
    { id: "host", title: "Host", sort: (row) => row.host, cell: (row) => h("span", { class: "data" }, row.host) },
    { id: "count", title: "Partitions", kind: "number", sort: (row) => row.partitions.length, cell: (row) => count(row.partitions.length) },
    { id: "which", title: "Which", grow: true, cell: (row) => h("span", { class: "data name" }, inShort(row.partitions)) },
    { id: "target", title: "Is to have", wide: true, cell: (row) => h("span", { class: "data name" }, targetOf(row)), hint: "Once other members have handed over what they have to" },
    { id: "epoch", title: "Epoch", kind: "number", wide: true, sort: (row) => row.epoch, cell: (row) => (row.epoch === null ? "–" : count(row.epoch)) },
    { id: "member", title: "Member id", wide: true, cell: (row) => h("span", { class: "data name" }, row.member_id) },
  ];
}

/** Empty where a member has what it is to have. */
function targetOf(member) {
  const target = member.target === null ? "" : inShort(member.target);
  return target === inShort(member.partitions) ? "" : target;
}

/** `orders 0–3, 7; flights 2`. */
function inShort(partitions) {
  const byTopic = new Map();
  for (const { topic, partition } of partitions) byTopic.set(topic, [...(byTopic.get(topic) ?? []), partition]);
  return [...byTopic].map(([topic, numbers]) => `${topic} ${ranges(numbers.sort((a, b) => a - b))}`).join("; ");
}

function ranges(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

function partitionColumns() {
  return [
    { id: "partition", title: "Partition", sort: (row) => `${row.topic}-${row.partition}`, cell: (row) => link(addressOf(["topics", row.topic, "partitions"]), h("span", { class: "data name" }, `${row.topic}-${row.partition}`)) },
    { id: "lag", title: "Lag", kind: "number", sort: (row) => (row.lag === null ? null : Number(row.lag)), cell: (row) => count(row.lag) },
    { id: "behind", title: "Behind", kind: "number", sort: (row) => row.lag_ms, cell: (row) => duration(row.lag_ms), hint: "Age of the oldest record that the group has not read" },
    { id: "offset", title: "Committed", kind: "number", sort: (row) => (row.offset === null ? null : Number(row.offset)), cell: (row) => (row.offset === null ? "none" : count(row.offset)) },
    { id: "end", title: "End", kind: "number", sort: (row) => Number(row.end_offset), cell: (row) => count(row.end_offset) },
    { id: "member", title: "Member", wide: true, grow: true, cell: (row) => (row.member_id === null ? h("span", { class: "note" }, "nobody") : h("span", { class: "data name" }, row.member_id)) },
  ];
}
