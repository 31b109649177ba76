// Lines over time: rates, lags.

import { h, s } from "../lib/dom.js";
import { bytes, clock } from "../lib/format.js";
import { legendItem, timeChart } from "./frame.js";

/** `series`: `[{name, tone}]`. `update(points)`: rising by `at`, each `{at, values: [number or null, …]}`. */
export function lineChart({ title, series, format, height = 150, empty = null }) {
  const chart = timeChart({ title, height, format, binary: format === bytes });
  return {
    element: chart.element,
    stop: chart.stop,
    update(points) {
      const all = points.flatMap((point) => point.values).filter((value) => value !== null && value !== undefined);
      const last = points.at(-1);
      chart.update({
        times: points.map((point) => point.at),
        most: Math.max(0, ...all),
        empty,
        summary: last === undefined ? "" : `Now: ${series.map((each, index) => `${each.name} ${format(last.values[index])}`).join(", ")}. The largest: ${format(Math.max(0, ...all))}.`,
        legend: series.map((each, index) => legendItem(each.tone, each.name, last === undefined ? null : format(last.values[index]))),
        readout: (index) => [h("span", { class: "data" }, clock(points[index].at)), series.map((each, which) => legendItem(each.tone, each.name, format(points[index].values[which])))],
        draw: (area) => series.map((each, which) => line(area, points, which, each.tone)),
      });
    },
  };
}

function line(area, points, which, tone) {
  const runs = [[]];
  for (const point of points) {
    const value = point.values[which];
    if (value === null || value === undefined) runs.push([]);
    else runs.at(-1).push(`${area.x(point.at).toFixed(1)},${area.y(value).toFixed(1)}`);
  }
  return runs
    .filter((run) => run.length > 0)
    .map((run) =>
      run.length === 1
        ? s("circle", { class: `dot tone-${tone}`, cx: run[0].split(",")[0], cy: run[0].split(",")[1], r: 2 })
        : [
            which === 0 ? s("polygon", { class: `area tone-${tone}`, points: `${run[0].split(",")[0]},${area.bottom} ${run.join(" ")} ${run.at(-1).split(",")[0]},${area.bottom}` }) : null,
            s("polyline", { class: `line tone-${tone}`, points: run.join(" ") }),
          ],
    );
}
