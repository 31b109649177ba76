// Writing one record.

import { path, send } from "../lib/api.js";
import { field, formDialog, input, select, whole } from "../lib/dialogs.js";
import { h } from "../lib/dom.js";
import { tell } from "../lib/notices.js";

/** `done({partition, offset})`. */
export function produceOne(topic, done) {
  const isTyped = topic.schema !== null;
  const partition = input("partition", { inputmode: "numeric" });
  const key = h("textarea", { name: "key", rows: 1, spellcheck: "false" });
  const value = h("textarea", { name: "value", rows: 7, spellcheck: "false" });
  const headers = h("textarea", { name: "headers", rows: 2, spellcheck: "false" });
  const form = select("form", [["text", "Text (UTF-8)"], ["base64", "Base64, for bytes"], ["none", "No value: a tombstone"]], "text", () => (value.disabled = form.value === "none"));
  const asInput = (text) => (form.value === "base64" ? { base64: text } : { text });
  formDialog({
    title: `Produce a record to ${topic.name}`,
    fields: [
      isTyped ? null : field("Key and value are", form),
      isTyped ? null : field("Key", key, "Empty: no key"),
      field(isTyped ? "Row" : "Value", value, isTyped ? `One JSON object with the columns ${topic.schema.columns.map((each) => each.name).join(", ")}` : null),
      field("Headers", headers, "One per line: name=value"),
      field("Partition", partition, "Empty: by the key, or any"),
    ],
    action: "Produce",
    send: () =>
      send("POST", path("topics", topic.name, "records"), {
        partition: whole(partition, "The partition", { least: 0 }),
        key: isTyped || key.value === "" ? null : asInput(key.value),
        value: form.value === "none" ? null : asInput(value.value),
        headers: headerLines(headers.value),
      }),
    done(made) {
      tell(`The record is at offset ${made.offset} of partition ${made.partition}.`);
      done(made);
    },
  });
}

function headerLines(text) {
  return text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? { key: line, value: null } : { key: line.slice(0, at), value: { text: line.slice(at + 1) } };
    });
}
