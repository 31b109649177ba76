// What screens say of subjects of the schema registry, and links to them.

import { path } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { addressOf } from "../lib/router.js";
import { link, state } from "../lib/words.js";

const LANGUAGES = { AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf" };

export const languageOf = (type) => LANGUAGES[type] ?? type ?? "–";

/** The server's path of a subject, and what the request says beside it: a name may have slashes. */
export function subjectPath(subject, ...rest) {
  return subject.includes("/") ? [path("subjects", "~", ...rest), { subject }] : [path("subjects", subject, ...rest), {}];
}

export function subjectLink(subject, version = null) {
  const text = version === null ? null : h("span", { class: "note" }, ` version ${version}`);
  return h("span", {}, link(addressOf(["schemas", subject], { version }), h("span", { class: "data name" }, subject)), text);
}

/** A level or mode; that of the whole registry is still. */
export function ruleOf(rule) {
  if (rule.value === null) return "–";
  return rule.own ? h("span", { class: "data set" }, rule.value) : h("span", { class: "data note", title: "As the whole registry has it" }, rule.value);
}

export function deletedState(isDeleted) {
  return isDeleted ? state("still", "deleted") : null;
}

/** Which version a key or value was read by, in a badge: `v3, id 7`. `own`: the subject that is expected. */
export function readBadge(schema, own) {
  const name = schema.subject === null ? "" : schema.subject === own ? `v${schema.version}, ` : `${schema.subject} v${schema.version}, `;
  const title = schema.why === null ? "The schema by which it is read" : "The schema by which it could not be read";
  return h("span", { class: schema.why === null ? "badge" : "badge warn", title }, `${name}id ${schema.id}`);
}

/** The same in a sentence, with a link. */
export function readSentence(schema) {
  if (schema.why !== null) return h("p", { class: "warn-text" }, `Not read by its schema (id ${schema.id}): ${schema.why}`);
  const others = schema.others > 0 ? `, which ${schema.others === 1 ? "one other version has" : `${schema.others} other versions have`}, too` : "";
  return h("p", { class: "note" }, `Read by the schema with id ${schema.id}`, schema.subject === null ? "" : [": ", subjectLink(schema.subject, schema.version), others], ".");
}
