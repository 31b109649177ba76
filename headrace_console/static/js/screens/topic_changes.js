// Creating, changing and deleting topics.

import { BadInput, path, send } from "../lib/api.js";
import { field, formDialog, input, whole } from "../lib/dialogs.js";
import { h } from "../lib/dom.js";
import { many } from "../lib/format.js";
import { tell } from "../lib/notices.js";
import { addressOf } from "../lib/router.js";

const SETTINGS_HINT = "One per line: retention.ms=86400000. A name alone (retention.ms=) goes back to the default.";

/** `name=value` on each line; throws a sentence that names the line. */
export function settingsOf(text, mayBeEmpty) {
  const settings = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter((each) => each !== "")) {
    const at = line.indexOf("=");
    const name = at < 0 ? line : line.slice(0, at).trim();
    const value = at < 0 ? "" : line.slice(at + 1).trim();
    if (name === "") throw new BadInput(`The line “${line}” has no name before its “=”.`);
    if (value === "" && !mayBeEmpty) throw new BadInput(`The setting ${name} has no value: write ${name}=VALUE.`);
    settings[name] = value === "" ? null : value;
  }
  return settings;
}

export function createTopic(session, done) {
  const name = input("name", { autocapitalize: "off", required: true });
  const partitions = input("partitions", { inputmode: "numeric" });
  const replicas = input("replicas", { inputmode: "numeric" });
  const settings = h("textarea", { name: "settings", rows: 3, spellcheck: "false" });
  const schema = h("textarea", { name: "schema", rows: 2, spellcheck: "false" });
  const key = input("key");
  const typed = session.features?.typed_topics
    ? h(
        "details",
        {},
        h("summary", {}, "Schema: a typed topic keeps its rows as columns"),
        field("Columns", schema, "Spark's DDL: id BIGINT NOT NULL, city STRING. A topic can't become typed later."),
        field("Key columns", key, "Names with commas between them; may be empty."),
      )
    : null;
  formDialog({
    title: "Create a topic",
    fields: [
      field("Name", name),
      h("div", { class: "side-by-side" }, field("Partitions", partitions, "Empty: the cluster's default"), field("Replicas of each", replicas, "Empty: the cluster's default")),
      field("Settings", settings, "One per line: retention.ms=86400000"),
      typed,
    ],
    action: "Create",
    send: () =>
      send("POST", "/topics", {
        name: name.value.trim(),
        partitions: whole(partitions, "The number of partitions"),
        replication_factor: whole(replicas, "The number of replicas"),
        settings: settingsOf(settings.value, false),
        schema: schema.value.trim() === "" ? null : schema.value.trim(),
        key: key.value.split(",").map((each) => each.trim()).filter((each) => each !== ""),
      }),
    done(topic) {
      tell(`Topic ${topic.name} has been created with ${many(topic.partitions, "partition")}.`);
      done(topic);
    },
  });
}

export function alterTopic(topic, done) {
  const own = (topic.settings ?? []).filter((each) => each.source === "topic" && !each.sensitive && each.name !== "headrace.schema");
  const before = own.map((each) => `${each.name}=${each.value}`).join("\n");
  const settings = h("textarea", { name: "settings", rows: Math.max(4, own.length + 1), spellcheck: "false", value: before });
  const partitions = input("partitions", { inputmode: "numeric", value: String(topic.partitions) });
  formDialog({
    title: `Change ${topic.name}`,
    fields: [
      field("Settings of this topic", settings, `${SETTINGS_HINT} Lines that you remove go back to the default, too.`),
      field("Partitions", partitions, "May only grow. Records with a key may go to another partition than before."),
    ],
    typed: topic.name,
    action: "Change",
    send() {
      const changed = changes(settingsOf(settings.value, true), own);
      const wanted = whole(partitions, "The number of partitions", { needed: true });
      if (wanted < topic.partitions) throw new BadInput(`A topic can't lose partitions: it has ${topic.partitions}.`);
      if (Object.keys(changed).length === 0 && wanted === topic.partitions) throw new BadInput("Nothing has been changed yet.");
      return send("PATCH", path("topics", topic.name), { confirm: topic.name, settings: changed, partitions: wanted > topic.partitions ? wanted : null });
    },
    done(answer) {
      tell(`Topic ${topic.name} has been changed.`);
      done(answer);
    },
  });
}

function changes(wanted, own) {
  const changed = {};
  for (const each of own) {
    if (!(each.name in wanted)) changed[each.name] = null;
    else if (wanted[each.name] !== each.value) changed[each.name] = wanted[each.name];
  }
  for (const [name, value] of Object.entries(wanted)) {
    if (!own.some((each) => each.name === name)) changed[name] = value;
  }
  return changed;
}

export function deleteTopic(topic) {
  formDialog({
    title: `Delete ${topic.name}`,
    intro: [
      h("p", {}, `This deletes ${many(topic.partitions, "partition")}`, topic.records === null ? "" : ` with ${many(topic.records, "record")}`, " on all brokers. It can't be undone."),
      topic.groups?.length ? h("p", {}, `These groups have offsets of it: ${topic.groups.slice(0, 10).join(", ")}.`) : null,
    ],
    typed: topic.name,
    danger: true,
    action: "Delete the topic",
    send: () => send("DELETE", path("topics", topic.name), { confirm: topic.name }),
    done() {
      tell(`Topic ${topic.name} has been deleted.`);
      location.hash = addressOf(["topics"]);
    },
  });
}
