// Leaders over time: a lane for each partition, in the colours of its leaders.

import { fill, h, s } from "../lib/dom.js";
import { moment } from "../lib/format.js";
import { legendItem, timeLabel, timeTicks } from "./frame.js";

const LANE = 22;
const BAR = 14;
const AXIS = 24;

/** The colour of a broker; 0 is that of no leader. */
export function toneOfBroker(id) {
  return id === null || id === undefined ? "none" : ((Number(id) - 1) % 7 + 7) % 7 + 1;
}

export function laneChart() {
  const place = h("div", { class: "chart-place" });
  const legend = h("div", { class: "chart-legend" });
  const element = h("figure", { class: "chart" }, h("div", { class: "chart-head" }, h("figcaption", {}, "Leaders of partitions"), legend), place);
  let width = 0;
  let values = null;
  const watcher = new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now !== width && now > 0) {
      width = now;
      draw();
    }
  });
  watcher.observe(place);

  function draw() {
    if (values === null || width === 0) return;
    const { lanes, fromMs, untilMs } = values;
    if (lanes.length === 0) {
      fill(place, h("p", { class: "empty" }, "No partition has had a leader in this time."));
      fill(legend);
      return;
    }
    const left = Math.min(220, Math.max(96, width * 0.22));
    const height = lanes.length * LANE + AXIS;
    const x = (ms) => left + ((Math.min(untilMs, Math.max(fromMs, ms)) - fromMs) / Math.max(1, untilMs - fromMs)) * (width - left - 8);
    const { ticks, stepMs } = timeTicks(fromMs, untilMs, Math.max(2, Math.floor((width - left) / 90)));
    fill(
      place,
      s(
        "svg",
        { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Leaders of ${lanes.length} partitions over time. The list of events below says the same in words.`, class: "chart-svg lanes" },
        ticks.map((tick) => [
          s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height - AXIS + 4 }),
          s("text", { class: "axis", x: x(tick), y: height - 6, "text-anchor": x(tick) > width - 28 ? "end" : "middle" }, timeLabel(tick, stepMs)),
        ]),
        lanes.map((lane, index) => drawnLane(lane, index, { x, left, untilMs })),
      ),
    );
    const brokers = [...new Set(lanes.flatMap((lane) => lane.spans.map((span) => span.leader)))].sort((a, b) => (a ?? -1) - (b ?? -1));
    fill(legend, brokers.map((id) => legendItem(toneOfBroker(id), id === null ? "no leader" : `broker ${id}`)));
  }

  return {
    element,
    update(given) {
      values = given;
      draw();
    },
    stop: () => watcher.disconnect(),
  };
}

function drawnLane(lane, index, { x, left, untilMs }) {
  const middle = index * LANE + LANE / 2;
  const label = `${lane.topic}-${lane.partition}`;
  const most = Math.floor((left - 10) / 7);
  const shown = label.length > most ? `${label.slice(0, Math.max(1, most - String(lane.partition).length - 2))}…-${lane.partition}` : label;
  return s(
    "g",
    {},
    s("text", { class: "lane-name", x: left - 8, y: middle + 4, "text-anchor": "end" }, shown, s("title", {}, label)),
    lane.spans.map((span) => {
      const from = x(span.from_ms);
      const until = x(span.until_ms ?? untilMs);
      const who = span.leader === null ? "no leader" : `broker ${span.leader}`;
      const epoch = span.epoch === null || span.epoch === undefined ? "" : `, leader epoch ${span.epoch}`;
      return s(
        "rect",
        { class: `span tone-${toneOfBroker(span.leader)}`, x: from.toFixed(1), y: middle - BAR / 2, width: Math.max(span.leader === null ? 2 : 1, until - from).toFixed(1), height: BAR, rx: 2 },
        s("title", {}, `${label}: ${who}${epoch}, from ${moment(span.from_ms)}${span.until_ms === null ? "" : ` until ${moment(span.until_ms)}`}`),
      );
    }),
  );
}
