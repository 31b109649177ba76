// What all charts share: they are as wide as their place, have axes with round numbers and times, and a
// cursor that follows the pointer and the arrow keys and tells the values under it in words.

import { fill, h, newId, s } from "../lib/dom.js";

const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;

/** From 0 to at least `most`, in about `wanted` round steps; with `binary` round in KiB, MiB and so on. */
export function ticksTo(most, { wanted = 3, binary = false } = {}) {
  if (!(most > 0)) return [0, 1];
  const unit = binary ? 1024 ** Math.max(0, Math.floor(Math.log(most) / Math.log(1024))) : 1;
  if (unit > 1) return ticksTo(most / unit, { wanted }).map((tick) => tick * unit);
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let index = 0; index * step < most + step; index += 1) ticks.push(Number((index * step).toPrecision(6)));
  return ticks;
}

const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Round local times between both, at most `most` of them. */
export function timeTicks(fromMs, untilMs, most = 5) {
  const span = Math.max(1, untilMs - fromMs);
  const stepMs = (TIME_STEPS_S.find((each) => span / (each * 1000) <= most) ?? Math.ceil(span / most / 86_400_000) * 86_400) * 1000;
  const zone = new Date(fromMs).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((fromMs - zone) / stepMs) * stepMs + zone; at <= untilMs; at += stepMs) ticks.push(at);
  return { ticks, stepMs };
}

export function timeLabel(ms, stepMs) {
  const date = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  if (stepMs >= 86_400_000) return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const text = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return stepMs < 60_000 ? `${text}:${two(date.getSeconds())}` : text;
}

/**
 * A chart over time, whose values `format` makes texts of; `binary`: they are bytes. `update` takes
 * `times`: rising, where the cursor may stand. `most`: the largest value.
 * `draw(area)` gives SVG nodes; `area` has `x(ms)`, `y(value)`, `left`, `right`, `top`, `bottom`.
 * `readout(index)`: nodes that tell the values at `times[index]`; `legend`: what is there without a
 * cursor. `summary`: the chart in a sentence. Gives `{element, update(values), stop()}`.
 */
export function timeChart({ title, height = 150, format, binary = false }) {
  const captionId = newId("chart");
  const place = h("div", { class: "chart-place" });
  const caption = h("figcaption", { id: captionId }, title);
  const told = h("div", { class: "chart-legend" });
  const spoken = h("div", { class: "unseen", "aria-live": "polite" });
  const element = h("figure", { class: "chart" }, h("div", { class: "chart-head" }, caption, told), place, spoken);
  let values = null;
  let width = 0;
  let at = null;

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
    if (values.times.length === 0) {
      fill(place, h("p", { class: "empty" }, values.empty ?? "Nothing has been measured yet."));
      fill(told);
      return;
    }
    const area = areaOf(values, width, height, binary);
    const svg = s(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title}. ${values.summary}`, class: "chart-svg" },
      axes(area, values, format),
      values.draw(area),
      s("line", { class: "cursor", y1: area.top, y2: area.bottom, x1: -9, x2: -9 }),
    );
    svg.addEventListener("pointermove", (event) => stand(nearest(area, values.times, event.offsetX), area, svg));
    svg.addEventListener("pointerleave", () => leave(svg));
    svg.addEventListener("blur", () => leave(svg));
    svg.addEventListener("keydown", (event) => moved(event, area, svg));
    const hadFocus = place.contains(document.activeElement);
    fill(place, svg);
    if (hadFocus) svg.focus();
    if (at === null) fill(told, values.legend);
    else stand(Math.min(at, values.times.length - 1), area, svg);
  }

  function stand(index, area, svg) {
    at = index;
    const x = area.x(values.times[index]);
    const line = svg.querySelector(".cursor");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    fill(told, values.readout(index));
  }

  function leave(svg) {
    at = null;
    svg.querySelector(".cursor").setAttribute("x1", -9);
    svg.querySelector(".cursor").setAttribute("x2", -9);
    fill(told, values.legend);
  }

  function moved(event, area, svg) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") leave(svg);
    if (step === undefined) return;
    event.preventDefault();
    const last = values.times.length - 1;
    stand(Math.max(0, Math.min(last, (at ?? last) + (at === null && Math.abs(step) === 1 ? 0 : step))), area, svg);
    spoken.textContent = told.textContent;
  }

  return {
    element,
    update(given) {
      values = given;
      if (at !== null && at >= given.times.length) at = null;
      draw();
    },
    stop: () => watcher.disconnect(),
  };
}

function areaOf({ times, most, fromMs = times[0], untilMs = times.at(-1) }, width, height, binary) {
  const ticks = ticksTo(most, { binary });
  const [left, right, top, bottom] = [LEFT, width - RIGHT, TOP, height - BOTTOM];
  const span = Math.max(1, untilMs - fromMs);
  return {
    left, right, top, bottom, ticks, fromMs, untilMs,
    x: (ms) => left + ((ms - fromMs) / span) * (right - left),
    y: (value) => bottom - (value / ticks.at(-1)) * (bottom - top),
  };
}

function axes(area, values, format) {
  const { ticks, stepMs } = timeTicks(area.fromMs, area.untilMs, Math.max(2, Math.floor((area.right - area.left) / 90)));
  return [
    area.ticks.map((tick) => [
      s("line", { class: "grid", x1: area.left, x2: area.right, y1: area.y(tick), y2: area.y(tick) }),
      s("text", { class: "axis", x: area.left - 6, y: area.y(tick) + 4, "text-anchor": "end" }, format(tick)),
    ]),
    ticks.map((tick) => s("text", { class: "axis", x: area.x(tick), y: area.bottom + 15, "text-anchor": anchorOf(area, tick) }, timeLabel(tick, stepMs))),
  ];
}

/** At the edges a label does not stand in the middle of its tick: it would be cut, or cover another. */
function anchorOf(area, tick) {
  if (area.x(tick) > area.right - 20) return "end";
  return area.x(tick) < area.left + 20 ? "start" : "middle";
}

function nearest(area, times, x) {
  let best = 0;
  times.forEach((ms, index) => {
    if (Math.abs(area.x(ms) - x) < Math.abs(area.x(times[best]) - x)) best = index;
  });
  return best;
}

/** A name with the colour that it has in the chart. */
export function legendItem(tone, text, value = null) {
  return h("span", { class: `legend tone-${tone}` }, text, value === null ? null : h("b", {}, value));
}
