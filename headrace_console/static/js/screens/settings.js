// Settings of topics and brokers, with their sources.

import { h } from "../lib/dom.js";
import { bytes, duration } from "../lib/format.js";

const ORDER = { topic: 0, "dynamic broker": 1, "dynamic default": 2, file: 3, default: 4, unknown: 5 };

export function settingColumns() {
  return [
    { id: "name", title: "Setting", cell: (row) => h("span", { class: "data" }, row.name), sort: (row) => row.name },
    { id: "value", title: "Value", grow: true, cell: settingValue },
    {
      id: "source", title: "From", sort: (row) => ORDER[row.source] ?? 9,
      cell: (row) => h("span", { class: row.is_default ? "note" : "set" }, row.source, row.read_only ? ", read-only" : ""),
    },
  ];
}

function settingValue(row) {
  if (row.sensitive || row.value === null) return h("span", { class: "note" }, row.sensitive ? "secret" : "not set");
  const words = inWords(row.name, row.value);
  return h("span", {}, h("span", { class: "data name" }, row.value === "" ? "(empty)" : row.value), words === null ? null : h("span", { class: "note" }, ` ${words}`));
}

/** What a plain number of a setting means, by the unit that ends its name. */
function inWords(name, value) {
  if (!/^-?\d+$/.test(value)) return null;
  if (value === "-1") return null;
  const number = Number(value);
  if (number > 9e15) return "no limit";
  if (/\.ms$/.test(name) && number >= 1000) return duration(number);
  if (/\.bytes$/.test(name) && number >= 1024) return bytes(number);
  return null;
}
