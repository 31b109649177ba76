// One broker: its settings, with where each comes from.

import { h } from "../lib/dom.js";
import { pagedList } from "../lib/paged.js";
import { path } from "../lib/api.js";
import { freshness, screenHead, section } from "../lib/words.js";
import { settingColumns } from "./settings.js";

export function openBroker(id) {
  const fresh = freshness();
  const settings = pagedList({
    where: `${path("brokers", id)}/settings`,
    label: `Settings of broker ${id}`,
    noun: "setting",
    empty: "The broker did not send its settings.",
    key: (row) => row.name,
    everyMs: 15_000,
    fresh,
    columns: settingColumns(),
  });
  return {
    title: `Broker ${id}`,
    element: h("div", {}, screenHead(`Broker ${id}`, { above: [["Overview", "#/overview"]], fresh: fresh.element }), section("Settings", {}, settings.element)),
    close() {
      settings.stop();
      fresh.stop();
    },
  };
}
