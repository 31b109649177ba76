// A bar for each micro-batch, made of its phases.

import { h, s } from "../lib/dom.js";
import { clock, duration } from "../lib/format.js";
import { legendItem, timeChart } from "./frame.js";

/** The phases of Spark's `durationMs` in the order in which they happen, with what each is. */
export const PHASES = [
  ["latestOffset", "asks the source what is new"],
  ["getBatch", "describes the micro-batch"],
  ["queryPlanning", "plans the query"],
  ["walCommit", "writes the offsets into the checkpoint"],
  ["addBatch", "runs the tasks and the sink's commit"],
  ["commitOffsets", "writes the commit into the checkpoint"],
  ["commitBatch", "tells the source what is done"],
];

/** The tasks take most of the time: theirs is the colour of the page. */
const TONES = { addBatch: 1, latestOffset: 2, queryPlanning: 3, walCommit: 4, commitBatch: 5, commitOffsets: 6, getBatch: 7 };

/** Of a history of Spark's progress: the phases that it has; others are the rest of `triggerExecution`. */
export function phasesOf(history) {
  const seen = new Set(history.flatMap((each) => Object.keys(each.durations_ms ?? {})));
  return PHASES.map(([name]) => name).filter((name) => seen.has(name));
}

function parts(durations, phases) {
  const values = phases.map((name) => durations[name] ?? 0);
  const sum = values.reduce((total, value) => total + value, 0);
  const total = Math.max(durations.triggerExecution ?? sum, sum);
  return { values: [...values, total - sum], total };
}

/** `update(history)`: rising by `at_ms`, each with `durations_ms` and `batch_id`. */
export function phaseChart({ title, height = 190 }) {
  const chart = timeChart({ title, height, format: (ms) => (ms === 0 ? "0" : duration(ms)) });
  return {
    element: chart.element,
    stop: chart.stop,
    update(history) {
      const phases = phasesOf(history);
      const names = [...phases, "other"];
      const bars = history.map((each) => parts(each.durations_ms ?? {}, phases));
      const last = bars.at(-1);
      const told = (bar) => names.map((name, index) => (bar.values[index] > 0 ? legendItem(toneOf(name), name, duration(bar.values[index])) : null));
      chart.update({
        times: history.map((each) => each.at_ms),
        most: Math.max(0, ...bars.map((bar) => bar.total)),
        empty: "No micro-batch has been told yet.",
        summary: last === undefined ? "" : `The last micro-batch took ${duration(last.total)}.`,
        legend: names.map((name) => legendItem(toneOf(name), name)),
        readout: (index) => [h("span", { class: "data" }, `${clock(history[index].at_ms)} · batch ${history[index].batch_id} · `, h("b", {}, duration(bars[index].total))), told(bars[index])],
        draw: (area) => drawn(area, history, bars, names),
      });
    },
  };
}

function toneOf(name) {
  return TONES[name] ?? 0;
}

function drawn(area, history, bars, names) {
  const width = Math.max(1.5, Math.min(22, ((area.right - area.left) / Math.max(1, history.length)) * 0.8));
  return bars.map((bar, index) => {
    // The first and the last bar are whole, and as far from their neighbours as the others.
    const share = (area.x(history[index].at_ms) - area.left) / Math.max(1, area.right - area.left);
    const x = area.left + Math.min(1, Math.max(0, share)) * (area.right - area.left - width);
    let below = 0;
    return bar.values.map((value, which) => {
      if (value <= 0) return null;
      const top = area.y(below + value);
      const rect = s("rect", { class: `bar tone-${toneOf(names[which])}`, x: x.toFixed(1), y: top.toFixed(1), width: width.toFixed(1), height: Math.max(0.5, area.y(below) - top).toFixed(1) });
      below += value;
      return rect;
    });
  });
}
