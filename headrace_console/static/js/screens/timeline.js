// Replication and failover: who led what when, and what a client saw of it.

import { laneChart } from "../charts/lanes.js";
import { get } from "../lib/api.js";
import { field, input, select } from "../lib/dialogs.js";
import { h, setText } from "../lib/dom.js";
import { keepAsking } from "../lib/live.js";
import { keepInAddress } from "../lib/router.js";
import { freshness, screenHead, section } from "../lib/words.js";
import { eventList } from "./events.js";

const SPANS = [[5, "5 minutes"], [30, "30 minutes"], [180, "3 hours"], [1440, "1 day"], [10080, "7 days"]];
const TYPING_MS = 300;
const MOST_EVENTS = 500;

/** From a little before the first that is known: a young cluster fills the chart, too. */
function within(lanes, { fromMs, untilMs }) {
  const first = Math.min(...lanes.flatMap((lane) => lane.spans.slice(0, 1).map((span) => span.from_ms)));
  if (!(first > fromMs)) return { fromMs, untilMs };
  return { fromMs: Math.max(fromMs, first - (untilMs - first) * 0.03), untilMs };
}

export function openTimeline({ query }) {
  const fresh = freshness();
  const span = select("span", SPANS, query.get("span") ?? 30, ask);
  const topic = input("topic", { class: "find", value: query.get("topic") ?? "", placeholder: "all", on: { input: typed } });
  const partition = input("partition", { inputmode: "numeric", value: query.get("partition") ?? "", placeholder: "all", on: { input: typed } });
  const broker = input("broker", { inputmode: "numeric", value: query.get("broker") ?? "", placeholder: "all", on: { input: typed } });
  const words = h("p", { class: "note" });
  const lanes = laneChart();
  const events = eventList("Nothing changed in this period.");
  const every = h("input", { type: "checkbox", id: "every", on: { change: ask } });
  const notAll = h("p", { class: "note" });
  let typing = null;
  let asked = null;

  const asking = keepAsking(
    (signal) => {
      const until = Date.now();
      asked = { fromMs: until - Number(span.value) * 60_000, untilMs: until };
      return get("/timeline", { since_ms: asked.fromMs, until_ms: until, topic: topic.value.trim(), partition: partition.value.trim(), broker: broker.value.trim(), limit: MOST_EVENTS }, signal);
    },
    {
      everyMs: 3000,
      failed: (error, since) => fresh.failed(error, since),
      show(answer) {
        fresh.shown(answer.as_of_ms, answer.unanswered);
        setText(words, answer.words ?? "");
        lanes.update({ lanes: answer.lanes ?? [], ...within(answer.lanes ?? [], asked) });
        events.update((answer.events ?? []).filter((event) => every.checked || event.kind !== "state"));
        setText(notAll, (answer.events?.length ?? 0) >= MOST_EVENTS ? "Older events of this period are not shown: choose a shorter period, or a topic." : "");
      },
    },
  );

  function ask() {
    keepInAddress({ span: span.value === "30" ? null : span.value, topic: topic.value.trim(), partition: partition.value.trim(), broker: broker.value.trim() });
    asking.again();
  }

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(ask, TYPING_MS);
  }

  return {
    title: "Timeline",
    element: h(
      "div",
      {},
      screenHead("Timeline", { fresh: fresh.element }),
      h("form", { class: "search-form", on: { submit: (event) => event.preventDefault() } }, h("div", { class: "form-row" }, field("The last", span), field("Topic", topic), field("Partition", partition), field("Broker", broker), h("div", { class: "check" }, every, h("label", { for: "every" }, "All changes of state of replicas")))),
      section("Leaders over time", {}, words, lanes.element),
      section("Events", {}, events.element, notAll),
    ),
    close() {
      clearTimeout(typing);
      asking.stop();
      fresh.stop();
      lanes.stop();
    },
  };
}
