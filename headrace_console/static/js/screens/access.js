// Who may do what: users, access rules and quotas of a secured cluster.

import { fill, h } from "../lib/dom.js";
import { bytes, count } from "../lib/format.js";
import { pagedList } from "../lib/paged.js";
import { freshness, screenHead, state, tabs } from "../lib/words.js";

const PARTS = {
  users: {
    title: "Users",
    noun: "user",
    empty: "There are no users with SCRAM passwords.",
    command: "headrace users",
    key: (row) => row.user,
    columns: [
      { id: "user", title: "User", cell: (row) => h("span", { class: "data name" }, row.user) },
      { id: "mechanisms", title: "Log in with", cell: (row) => row.mechanisms.join(", ") },
    ],
  },
  acls: {
    title: "Access rules",
    noun: "rule",
    empty: "There are no access rules.",
    command: "headrace acls",
    key: (row) => Object.values(row).join(" "),
    columns: [
      { id: "principal", title: "Principal", cell: (row) => h("span", { class: "data name" }, row.principal) },
      { id: "permission", title: "Permission", cell: (row) => (row.permission === "DENY" ? state("bad", "denied") : state("good", "allowed")) },
      { id: "operation", title: "Operation", cell: (row) => h("span", { class: "data" }, row.operation) },
      { id: "resource", title: "Resource", cell: resource },
      { id: "host", title: "Host", cell: (row) => h("span", { class: "data" }, row.host === "*" ? "any" : row.host) },
    ],
  },
  quotas: {
    title: "Quotas",
    noun: "quota",
    empty: "There are no quotas.",
    command: "headrace quotas",
    key: (row) => JSON.stringify(row.entity),
    columns: [
      { id: "entity", title: "Whose", cell: (row) => h("span", { class: "data name" }, Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ")) },
      { id: "values", title: "At most", cell: quotaValues },
    ],
  },
};

function resource(row) {
  const name = row.pattern === "PREFIXED" ? `${row.resource}…` : row.resource === "*" ? "any" : row.resource;
  return h("span", {}, String(row.resource_type).toLowerCase(), " ", h("span", { class: "data name" }, name), row.pattern === "PREFIXED" ? h("span", { class: "note" }, " prefix") : null);
}

const RATES = { producer_byte_rate: "written", consumer_byte_rate: "read", connection_creation_rate: "new connections", controller_mutation_rate: "changed partitions" };

function quotaValues(row) {
  const texts = Object.entries(row.values).map(([name, value]) => {
    if (/byte_rate$/.test(name)) return `${bytes(value)}/s ${RATES[name] ?? name}`;
    if (name === "request_percentage") return `${count(value)} % of a request thread's time`;
    return `${count(value)}/s ${RATES[name] ?? name}`;
  });
  return h("span", {}, texts.join(", "));
}

export function openAccess(tab, { session }) {
  const parts = Object.entries(PARTS).map(([id, each]) => [id, each.title, `#/access/${id}`]);
  const id = tab in PARTS ? tab : "users";
  const part = PARTS[id];
  const fresh = freshness();
  const place = h("div");
  if (session.features?.access === false) {
    fresh.stop();
    return { title: "Access", element: h("div", {}, screenHead("Access"), h("p", { class: "empty" }, "This cluster has no access control: every client that reaches it may do everything. ", h("code", {}, "headrace up --secure"), " makes a secured one, and docs/security.md leads from an open cluster to a secured one.")) };
  }
  const list = pagedList({ where: `/access/${id}`, label: part.title, noun: part.noun, empty: part.empty, key: part.key, columns: part.columns, everyMs: 15_000, fresh });
  fill(place, h("p", { class: "note" }, "The rules in force; change them with ", h("code", {}, part.command), " or Kafka's own tools."), list.element);
  return {
    title: "Access",
    element: h("div", {}, screenHead("Access", { fresh: fresh.element }), tabs("Pages of access", parts, id), place),
    close() {
      list.stop();
      fresh.stop();
    },
  };
}
