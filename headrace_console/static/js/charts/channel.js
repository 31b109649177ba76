// A partition's log as a channel: how far it reaches, and from where on a `read_committed` reader waits.

import { h } from "../lib/dom.js";
import { count } from "../lib/format.js";

/** `longest`: the records of the longest log beside it. */
export function channel({ start_offset: start, end_offset: end, stable_offset: stable }, longest) {
  if (start === null || end === null || start === undefined || end === undefined) return "–";
  const records = Number(end) - Number(start);
  const waiting = stable === null || stable === undefined ? 0 : Math.max(0, Number(end) - Number(stable));
  const label = waiting > 0 ? `${count(records)} records, the last ${count(waiting)} wait for a transaction` : `${count(records)} records, all can be read`;
  const still = h("span", { class: "channel-read" });
  const held = h("span", { class: "channel-waiting" });
  const whole = Math.max(1, Number(longest) || records);
  still.style.width = `${(Math.max(0, records - waiting) / whole) * 100}%`;
  held.style.width = `${waiting === 0 ? 0 : Math.max(2, (waiting / whole) * 100)}%`;
  return h("span", { class: "channel", role: "img", "aria-label": label, title: label }, still, held);
}
