// The subjects of the schema registry that one may see.

import { h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { freshness, link, screenHead } from "../lib/words.js";
import { deletedState, languageOf, ruleOf, subjectLink } from "./schema_words.js";

export function noRegistry() {
  return {
    title: "Schemas",
    element: h(
      "div",
      {},
      screenHead("Schemas"),
      h("p", { class: "empty" }, "This console knows no schema registry. ", h("code", {}, "headrace up --registry"), " starts one with a local cluster, and ", h("code", {}, "headrace console --registry URL"), " names another."),
    ),
  };
}

export function openSchemas() {
  const fresh = freshness();
  const deleted = h("input", { type: "checkbox", id: "deleted", on: { change: () => list.again() } });
  const list = pagedList({
    where: "/subjects",
    label: "Subjects",
    noun: "subject",
    empty: "There is no subject yet, or none that you may see.",
    key: (row) => row.subject,
    fresh,
    everyMs: 15_000,
    order: { id: "subject", falling: false },
    extra: () => ({ deleted: deleted.checked ? 1 : 0 }),
    controls: [h("div", { class: "check" }, deleted, h("label", { for: "deleted" }, "Show deleted subjects"))],
    columns: [
      { id: "subject", title: "Subject", sort: true, grow: true, cell: (row) => h("span", {}, subjectLink(row.subject), row.deleted ? [" ", deletedState(true)] : null) },
      { id: "topic", title: "Topic", cell: (row) => (row.topic === null ? "–" : link(addressOf(["topics", row.topic]), h("span", { class: "data name" }, row.topic))) },
      { id: "type", title: "Language", cell: (row) => languageOf(row.type) },
      { id: "latest", title: "Latest", kind: "number", cell: (row) => count(row.latest), hint: "The latest version" },
      { id: "versions", title: "Versions", kind: "number", cell: (row) => count(row.versions) },
      { id: "schema_id", title: "Id", kind: "number", cell: (row) => (row.id === null ? "–" : String(row.id)), hint: "Of the latest version" },
      { id: "level", title: "Compatibility", cell: (row) => ruleOf(row.level), hint: "What a new version must be; grey where the whole registry says so" },
      { id: "mode", title: "Mode", wide: true, cell: (row) => ruleOf(row.mode), hint: "Whether new versions may be registered" },
    ],
  });
  return {
    title: "Schemas",
    element: h("div", {}, screenHead("Schemas", { fresh: fresh.element }), list.element),
    close() {
      list.stop();
      fresh.stop();
    },
  };
}
