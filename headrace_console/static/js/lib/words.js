// Small parts that many screens share: sentences, states, times, links, and what did not answer.

import { h, fill, classes } from "./dom.js";
import { ago, clock, iso, moment } from "./format.js";
import { messageOf } from "./api.js";

/** A sentence of the server, in which `commands` stand between backquotes. */
export function sentence(text) {
  return String(text ?? "")
    .split("`")
    .map((part, index) => (index % 2 === 1 ? h("code", {}, wordsOf(part)) : part));
}

/** A command, whose short words are not broken at their hyphens. */
function wordsOf(command) {
  return command.split(/( )/).map((word) => (word.includes("-") && word.length <= 24 ? h("span", { class: "whole" }, word) : word));
}

/** With a capital and a full stop. */
export function asSentence(text) {
  if (!text) return "";
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** A state as a word with a mark. `tone`: good, warn, bad or still. */
export function state(tone, word) {
  return h("span", { class: `state ${tone}` }, word);
}

/** How long ago, with the moment itself for those who point at it. */
export function when(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return h("time", { datetime: iso(ms), title: moment(ms) }, ago(ms));
}

/** The moment, to the millisecond. */
export function exactly(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return h("time", { datetime: iso(ms), class: "data" }, moment(ms));
}

export function link(address, ...content) {
  return h("a", { href: address }, content);
}

/** A name of the cluster: it may be long, and breaks anywhere. */
export function name(text) {
  return h("span", { class: "data name" }, text);
}

/** Pairs of a term and what it is. Those whose value is null are left out. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}

export function section(title, { actions = null, note = null, id = null } = {}, ...content) {
  return h(
    "section",
    { class: "block", id },
    h("div", { class: "block-head" }, h("h2", {}, title), actions === null ? null : h("div", { class: "actions" }, actions)),
    note === null ? null : h("p", { class: "note" }, note),
    content,
  );
}

export function button(text, onClick, { kind = null, disabled = false, title = null } = {}) {
  return h("button", { type: "button", class: kind, disabled, title, on: { click: onClick } }, text);
}

/** Links to the parts of a screen. `parts`: `[id, title, address]`. */
export function tabs(label, parts, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    parts.map(([id, title, address]) => h("a", { href: address, "aria-current": id === current ? "page" : null }, title)),
  );
}

/**
 * The line under a title that says how old the values are, who did not answer, and what failed.
 * Gives `{element, shown(asOfMs, unanswered), failed(error, sinceMs), stop()}`.
 */
export function freshness() {
  const age = h("span", { class: "age" }, "Asking the cluster …");
  const trouble = h("div", { class: "trouble", role: "status" });
  const element = h("div", { class: "freshness" }, age, trouble);
  let asOf = null;
  let failure = null;
  let lacking = [];
  const timer = setInterval(draw, 1000);

  function draw() {
    if (asOf !== null) {
      const text = `Read ${ago(asOf)}`;
      if (age.textContent !== text) age.textContent = text;
    } else if (failure !== null) age.textContent = "";
  }

  function drawTrouble() {
    const lines = lacking.map((each) => each.why ?? String(each));
    if (failure !== null) lines.unshift(`${messageOf(failure.error)} (since ${clock(failure.sinceMs)})`);
    const told = lines.join("\n");
    if (trouble.dataset.told === told) return;
    trouble.dataset.told = told;
    fill(trouble, lines.map((line) => h("p", {}, sentence(line))));
  }

  return {
    element,
    shown(asOfMs, unanswered = []) {
      asOf = asOfMs ?? Date.now();
      lacking = unanswered ?? [];
      draw();
      drawTrouble();
    },
    failed(error, sinceMs) {
      failure = error === null ? null : { error, sinceMs };
      if (error !== null) lacking = error.unanswered ?? [];
      element.classList.toggle("stale", error !== null);
      draw();
      drawTrouble();
    },
    stop: () => clearInterval(timer),
  };
}

/**
 * A screen of one thing, and what stands there when the cluster has no such thing: `words`, and a link
 * to `all` of its kind. What was shown before stays; what can be done with it does not.
 * Gives `{element, found(), missing()}`.
 */
export function screenOfOne({ words, all, address, head, fresh, content }) {
  const note = h("p", { class: "empty", hidden: true }, words, " ", link(address, all));
  const rest = h("div", {}, content);
  const actions = head.querySelector(".actions");
  let wasShown = false;

  function draw(isMissing) {
    note.hidden = !isMissing;
    actions.hidden = isMissing;
    rest.hidden = fresh.hidden = isMissing && !wasShown;
  }

  return {
    element: h("div", {}, head, note, rest),
    found() {
      wasShown = true;
      draw(false);
    },
    missing: () => draw(true),
  };
}

/** The head of a screen: where it belongs, its title, what can be done, and how old it is. */
export function screenHead(title, { above = [], actions = [], fresh = null, badge = null } = {}) {
  return h(
    "div",
    { class: "screen-head" },
    above.length === 0
      ? null
      : h("nav", { class: "above", "aria-label": "Above" }, above.map(([text, address]) => [link(address, text), " / "])),
    h(
      "div",
      { class: "screen-title" },
      h("h1", { tabindex: -1, class: classes(above.length > 0 && "data") }, title),
      badge,
      h("div", { class: "actions" }, actions),
    ),
    fresh,
  );
}

/** How full something is. `tone` follows from the part. */
export function gauge(part, whole, label) {
  const full = whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
  const tone = full >= 0.95 ? "bad" : full >= 0.85 ? "warn" : "plain";
  const bar = h("span", { class: "gauge-fill" });
  bar.style.width = `${(full * 100).toFixed(1)}%`;
  return h("span", { class: `gauge ${tone}`, role: "img", "aria-label": label, title: label }, bar);
}
