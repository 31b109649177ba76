// One subject: its rules, its versions, the text of one of them, and what differs between two.

import { get, messageOf } from "../lib/api.js";
import { select } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { count, many } from "../lib/format.js";
import { indented } from "../lib/json_text.js";
import { lineDiff } from "../lib/line_diff.js";
import { keepAsking } from "../lib/live.js";
import { pagedList } from "../lib/paged.js";
import { addressOf, keepInAddress } from "../lib/router.js";
import { facts, freshness, link, screenHead, screenOfOne, section } from "../lib/words.js";
import { deletedState, languageOf, ruleOf, subjectLink, subjectPath } from "./schema_words.js";

const MOST_TOKENS = 400_000;
const NEAR = 3;

export function openSubject(name, context) {
  const fresh = freshness();
  const told = h("div");
  const badges = h("span", { class: "badges" });
  const text = schemaText(name, context.query);
  const [where, query] = subjectPath(name);
  const [versionsWhere, versionsQuery] = subjectPath(name, "versions");
  const asking = keepAsking((signal) => get(where, query, signal), {
    everyMs: 15_000,
    failed(error, since) {
      fresh.failed(error, since);
      if (error?.status === 404) screen.missing();
    },
    show(answer) {
      screen.found();
      fresh.shown(answer.as_of_ms, answer.unanswered);
      fill(badges, deletedState(answer.deleted));
      fill(told, subjectFacts(answer));
      text.told(answer);
    },
  });
  const versions = pagedList({
    where: versionsWhere,
    extra: () => versionsQuery,
    label: `Versions of ${name}`,
    noun: "version",
    empty: "There is no version.",
    key: (row) => row.version,
    canFind: false,
    everyMs: 15_000,
    order: { id: "version", falling: true },
    columns: [
      { id: "version", title: "Version", kind: "number", sort: true, cell: (row) => link(addressOf(["schemas", name], { version: row.version }), String(row.version)) },
      { id: "id", title: "Id", kind: "number", cell: (row) => (row.id === null ? "–" : String(row.id)) },
      { id: "type", title: "Language", cell: (row) => languageOf(row.type) },
      { id: "characters", title: "Characters", kind: "number", cell: (row) => count(row.characters) },
      { id: "references", title: "References", kind: "number", cell: (row) => count(row.references) },
      { id: "state", title: "State", grow: true, cell: (row) => deletedState(row.deleted) ?? "in use" },
    ],
  });
  const screen = screenOfOne({
    words: "There is no subject of this name, or you may not see it.",
    all: "All subjects",
    address: "#/schemas",
    head: screenHead(name, { above: [["Schemas", "#/schemas"]], badge: badges, fresh: fresh.element }),
    fresh: fresh.element,
    content: [told, section("Schema", { actions: text.controls }, text.element), section("Versions", {}, versions.element)],
  });
  return {
    title: `${name} – subject`,
    element: screen.element,
    close() {
      asking.stop();
      versions.stop();
      text.stop();
      fresh.stop();
    },
  };
}

function subjectFacts(subject) {
  return facts([
    ["Topic", subject.topic === null ? null : topicOf(subject)],
    ["Language", languageOf(subject.type)],
    ["Versions", count(subject.versions)],
    ["Compatibility", ruleOf(subject.level)],
    ["Mode", ruleOf(subject.mode)],
  ]);
}

function topicOf(subject) {
  const name = h("span", { class: "data name" }, subject.topic);
  const part = h("span", { class: "note" }, `, its ${subject.part}s`);
  return subject.topic_is_there ? h("span", {}, link(addressOf(["topics", subject.topic]), name), part) : h("span", {}, name, h("span", { class: "note" }, ", which is not there"));
}

/** The text of the chosen version, or what differs from another one. */
function schemaText(name, query) {
  const place = h("div");
  const pickers = h("div", { class: "pickers" });
  let chosen = query.get("version");
  let other = query.get("with");
  let shown = null;
  let stopper = new AbortController();

  function told(subject) {
    const numbers = JSON.stringify(subject.numbers);
    if (numbers === shown) return;
    shown = numbers;
    chosen ??= String(subject.latest);
    const names = subject.numbers.map((number) => [number, `Version ${number}`]);
    // One that is older than the list shows, or of which only the address knows.
    if (!subject.numbers.includes(Number(chosen))) names.push([chosen, `Version ${chosen}`]);
    fill(
      pickers,
      h("label", {}, "Show ", select("version", names, chosen, (value) => choose(value, other))),
      h("label", {}, "Compare with ", select("with", [["", "nothing"], ...names], other ?? "", (value) => choose(chosen, value === "" ? null : value))),
    );
    void draw();
  }

  function choose(version, compared) {
    chosen = version;
    other = compared;
    keepInAddress({ version, with: compared });
    void draw();
  }

  async function draw() {
    stopper.abort();
    const mine = (stopper = new AbortController());
    const load = (version) => {
      const [where, more] = subjectPath(name, "versions", version);
      return get(where, more, mine.signal);
    };
    try {
      const [version, compared] = await Promise.all([load(chosen), other === null ? null : load(other)]);
      fill(place, compared === null ? whole(version) : difference(compared, version));
    } catch (error) {
      if (error.code !== "ABORTED") fill(place, h("p", { class: "form-problem", role: "alert" }, messageOf(error)));
    }
  }

  return { element: place, controls: pickers, told, stop: () => stopper.abort() };
}

function whole(version) {
  return [
    facts([
      ["Id", String(version.id)],
      ["Refers to", places(version.references, (each) => (each.name === each.subject ? "" : ` as ${each.name}`))],
      ["Referred to by", places(version.referenced_by, () => "", version.referenced_by_cut)],
      ["The same schema", places(version.others, () => "")],
    ]),
    h("pre", { class: "text-block tall", tabindex: 0, role: "region", "aria-label": "Text of the schema" }, readable(version)),
  ];
}

function places(rows, more, cut = 0) {
  if (rows.length === 0) return null;
  return h("span", {}, rows.map((each, index) => [index > 0 ? ", " : null, subjectLink(each.subject, each.version), more(each)]), cut > 0 ? ` and ${count(cut)} more` : null);
}

const readable = (version) => (version.type === "PROTOBUF" ? null : indented(version.text, MOST_TOKENS)) ?? version.text;

function difference(before, after) {
  const lines = lineDiff(readable(before), readable(after));
  const title = `What version ${after.version} has other than version ${before.version}`;
  if (lines === null) return h("p", { class: "empty" }, "The two versions differ in too many lines to be compared here.");
  if (lines.every((line) => line.kind === "same")) return h("p", { class: "empty" }, `Version ${before.version} and version ${after.version} have the same text.`);
  return [
    h("p", { class: "note" }, `${title}: lines with + were added, lines with − removed.`),
    h("div", { class: "text-block tall diff", tabindex: 0, role: "region", "aria-label": title }, folded(lines).map((line) => h("div", { class: line.kind }, h("span", { class: "sign" }, SIGNS[line.kind]), line.text))),
  ];
}

const SIGNS = { same: " ", added: "+", removed: "−", left: "…" };

/** Without what is the same, but for some lines around each change. */
function folded(lines) {
  const isNear = lines.map(() => false);
  lines.forEach((line, index) => {
    if (line.kind !== "same") isNear.fill(true, Math.max(0, index - NEAR), index + NEAR + 1);
  });
  const found = [];
  let left = 0;
  lines.forEach((line, index) => {
    if (!isNear[index]) {
      left += 1;
      return;
    }
    if (left > 0) found.push({ kind: "left", text: ` ${many(left, "line")} as before` });
    left = 0;
    found.push(line);
  });
  if (left > 0) found.push({ kind: "left", text: ` ${many(left, "line")} as before` });
  return found;
}
