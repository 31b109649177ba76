// Setting the offsets of a group, after a look at what that would do; and deleting a group.

import { BadInput, path, send } from "../lib/api.js";
import { field, formDialog, input, select } from "../lib/dialogs.js";
import { h } from "../lib/dom.js";
import { count, duration, many } from "../lib/format.js";
import { tell } from "../lib/notices.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";

const MEMBERS_FIRST = "Stop its members first: their commits would overwrite the offsets that are set here, so the coordinator refuses them.";

export function resetOffsets(group, done) {
  const topics = [...new Set(group.partitions.map((each) => each.topic))].sort();
  const which = select("topics", topics.length === 1 ? [["", topics[0]]] : [["", `all ${many(topics.length, "topic")}`], ...topics.map((each) => [each, each])], "");
  const to = select("to", [["earliest", "the earliest record"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "a number of records from the committed offset"]], "earliest", showFields);
  const time = input("time", { type: "datetime-local", step: 1 });
  const offset = input("offset", { inputmode: "numeric" });
  const shift = input("shift", { placeholder: "-100" });
  const fields = { time: field("Time", time), offset: field("Offset", offset), shift: field("Records", shift, "Negative: back") };

  function showFields() {
    for (const [name, element] of Object.entries(fields)) element.hidden = to.value !== name;
  }

  function target() {
    if (to.value === "time") {
      const ms = new Date(time.value).getTime();
      if (Number.isNaN(ms)) throw new BadInput("Give the time.");
      return { time_ms: ms };
    }
    if (to.value === "offset") return { offset: numberOf(offset, /^\d+$/, "Give the offset as a whole number.") };
    if (to.value === "shift") return { shift_by: numberOf(shift, /^-?\d+$/, "Give the number of records, such as -100.") };
    return to.value;
  }

  showFields();
  formDialog({
    title: `Reset offsets of ${group.group}`,
    intro: group.members.length > 0 ? h("p", { class: "warn-text" }, `The group has ${many(group.members.length, "member")}. ${MEMBERS_FIRST}`) : null,
    fields: [field("Topics", which), field("Set to", to), ...Object.values(fields)],
    action: "Preview",
    send: () => send("POST", path("groups", group.group, "reset", "preview"), { topics: which.value === "" ? [] : [which.value], to: target() }),
    done: (preview) => applyReset(group, preview, done),
  });
}

function numberOf(control, pattern, wrong) {
  const text = control.value.trim();
  if (!pattern.test(text)) throw new BadInput(wrong);
  return Number(text);
}

function applyReset(group, preview, done) {
  const rows = table({
    label: "Offsets to set",
    empty: "The group has no offsets here: nothing would change.",
    key: (row) => `${row.topic}-${row.partition}`,
    columns: [
      { id: "partition", title: "Partition", sort: (row) => `${row.topic}-${row.partition}`, cell: (row) => h("span", { class: "data name" }, `${row.topic}-${row.partition}`) },
      { id: "before", title: "Now", kind: "number", cell: (row) => (row.before === null ? "none" : count(row.before)) },
      { id: "after", title: "Then", kind: "number", cell: (row) => count(row.after) },
      { id: "change", title: "Change", kind: "number", sort: (row) => row.change, cell: (row) => (row.change === null ? "–" : `${row.change > 0 ? "+" : ""}${count(row.change)}`) },
    ],
  });
  rows.update(preview.rows);
  const back = preview.rows.reduce((sum, row) => sum + Math.max(0, -Number(row.change ?? 0)), 0);
  const on = preview.rows.reduce((sum, row) => sum + Math.max(0, Number(row.change ?? 0)), 0);
  formDialog({
    title: `Set the offsets of ${group.group}?`,
    wide: true,
    intro: [
      h("p", {}, back > 0 ? `${many(back, "record")} will be read again. ` : "", on > 0 ? `${many(on, "record")} will be skipped. ` : "", back + on === 0 ? "No offset changes." : ""),
      h("p", { class: "note" }, `Nothing has been changed yet. This preview holds for ${duration(preview.expires_ms - Date.now())}; if offsets change before, nothing is set.`),
    ],
    fields: [rows.element],
    typed: group.group,
    danger: true,
    action: "Set these offsets",
    send: () => send("POST", path("groups", group.group, "reset", "apply"), { preview_id: preview.preview_id, confirm: group.group }),
    done(answer) {
      tell(`The offsets of ${group.group} have been set on ${many(answer.rows.length, "partition")}.`);
      done();
    },
  });
}

export function deleteGroup(group) {
  formDialog({
    title: `Delete the group ${group.group}`,
    intro: h("p", {}, `Its offsets of ${many(group.partitions.length, "partition")} are deleted: a consumer that joins the group later begins where its setting auto.offset.reset says.`, group.members.length > 0 ? ` ${MEMBERS_FIRST}` : ""),
    typed: group.group,
    danger: true,
    action: "Delete the group",
    send: () => send("DELETE", path("groups", group.group), { confirm: group.group }),
    done() {
      tell(`The group ${group.group} has been deleted.`);
      location.hash = addressOf(["groups"]);
    },
  });
}
