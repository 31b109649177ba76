// Spark's queries: the list, and of each its rates, micro-batches, lag, sink and what is wrong with it.

import { phaseChart } from "../charts/bars.js";
import { lineChart } from "../charts/lines.js";
import { get, path } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, duration, short } from "../lib/format.js";
import { keepAsking } from "../lib/live.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { facts, freshness, link, screenHead, screenOfOne, section, sentence, state, when } from "../lib/words.js";
import { sinkList, sinkParts } from "./sinks.js";
import { waitingTable } from "./waiting.js";

const STATES = { active: ["good", "active"], silent: ["warn", "silent"], terminated: ["still", "ended"], failed: ["bad", "failed"] };
const HOW_TO = "spark.streams.addListener(connector.QueryMetrics(url))";

const queryState = (value) => state(...(STATES[value] ?? ["still", value]));
const nameOf = (row) => row.name ?? row.id;

export function openQueries({ session }) {
  const fresh = freshness();
  if (session.features?.queries === false) return withoutQueries(fresh);
  const list = pagedList({
    where: "/queries",
    label: "Queries",
    noun: "query",
    empty: [h("span", {}, "No query has reported its progress to this console yet. In the driver: "), h("code", {}, HOW_TO), h("span", {}, ", with the address of this console.")],
    key: (row) => row.id,
    fresh,
    everyMs: 3000,
    order: { id: "last_ms", falling: true },
    columns: queryColumns(),
  });
  const sinks = session.features?.sinks === false ? null : sinkList();
  return {
    title: "Queries",
    element: h(
      "div",
      {},
      screenHead("Queries", { fresh: fresh.element, actions: [link("#/dead-letters", "Dead letters")] }),
      list.element,
      sinks === null ? null : section("Sinks", { note: "What the cluster itself knows of each exactly-once sink: its last commit, and the tasks that write now." }, sinks.element),
    ),
    close() {
      list.stop();
      sinks?.stop();
      fresh.stop();
    },
  };
}

function withoutQueries(fresh) {
  fresh.stop();
  return { title: "Queries", element: h("div", {}, screenHead("Queries"), h("p", { class: "empty" }, "This console accepts no progress of queries.")) };
}

function queryColumns() {
  return [
    { id: "name", title: "Query", sort: true, cell: (row) => link(addressOf(["queries", row.id]), h("span", { class: "data name" }, nameOf(row))) },
    { id: "state", title: "State", grow: true, cell: (row) => h("span", {}, queryState(row.state), row.problem ? h("span", { class: "note" }, " ", sentence(row.problem)) : null) },
    { id: "batch_id", title: "Micro-batch", kind: "number", cell: (row) => count(row.batch_id) },
    { id: "input", title: "In, rows/s", kind: "number", cell: (row) => short(row.input_rows_per_s) },
    { id: "processed", title: "Processed, rows/s", kind: "number", wide: true, cell: (row) => short(row.processed_rows_per_s) },
    { id: "duration", title: "Took", kind: "number", cell: (row) => h("span", { class: row.trigger_ms && row.batch_duration_ms > row.trigger_ms ? "warn-text" : null, title: row.trigger_ms ? `Its trigger is ${duration(row.trigger_ms)}` : null }, duration(row.batch_duration_ms)) },
    { id: "lag", title: "Lag", kind: "number", cell: (row) => count(row.lag) },
    { id: "topics", title: "Topics", wide: true, cell: (row) => (row.topics?.length ? h("span", { class: "data name" }, row.topics.join(", ")) : "–") },
    { id: "last_ms", title: "Last report", sort: true, cell: (row) => when(row.last_ms) },
  ];
}

export function openQuery(id, context) {
  const fresh = freshness();
  const title = h("span", {}, id);
  const trouble = h("div");
  const told = h("div");
  const rates = lineChart({ title: "Rows per second", series: [{ name: "in", tone: 1 }, { name: "can do", tone: 3 }], format: short });
  const lag = lineChart({ title: "Lag: rows behind the end", series: [{ name: "lag", tone: 5 }], format: short, empty: "Spark reported no lag of this query." });
  const phases = phaseChart({ title: "Micro-batches by phase" });
  const waiting = waitingTable("Nowhere: every record of its topics can be read with read_committed.");
  const sources = table({ label: "Sources", empty: "The query reported no sources.", key: (row) => row.description, columns: sourceColumns() });
  const operators = table({ label: "State", empty: "The query keeps no state.", key: (row) => row.name, columns: operatorColumns() });
  const sink = sinkParts();
  const letters = h("span");
  const asking = keepAsking((signal) => get(path("queries", id), {}, signal), {
    everyMs: 2000,
    failed(error, since) {
      fresh.failed(error, since);
      if (error?.status === 404) screen.missing();
    },
    show(query) {
      screen.found();
      fresh.shown(query.as_of_ms ?? Date.now(), query.unanswered);
      fill(title, nameOf(query));
      fill(trouble, troubleOf(query));
      fill(told, queryFacts(query));
      const history = (query.history ?? []).slice().sort((a, b) => a.at_ms - b.at_ms);
      rates.update(history.map((each) => ({ at: each.at_ms, values: [each.input_rows_per_s, each.processed_rows_per_s] })));
      lag.update(history.some((each) => each.lag !== null && each.lag !== undefined) ? history.map((each) => ({ at: each.at_ms, values: [each.lag] })) : []);
      phases.update(history.filter((each) => Object.keys(each.durations_ms ?? {}).length > 0).slice(-120));
      waiting.update(query.waiting ?? []);
      sources.update(query.sources ?? []);
      operators.update(query.state_operators ?? []);
      sink.update(query);
      fill(letters, query.dead_letter_topic ? link(addressOf(["dead-letters", query.dead_letter_topic]), `Dead letters: ${query.dead_letter_topic}`) : null);
    },
  });
  const screen = screenOfOne({
    words: "No query with this id has posted its progress: the console keeps queries in memory, and drops the one that has been silent longest.",
    all: "All queries",
    address: "#/queries",
    head: screenHead(title, { above: [["Queries", "#/queries"]], fresh: fresh.element, actions: [letters] }),
    fresh: fresh.element,
    content: [
      trouble,
      told,
      section("Micro-batches", {}, phases.element, h("div", { class: "charts" }, rates.element, lag.element)),
      section("Its sink", {}, sink.element),
      section("Where read_committed readers of its topics wait", {}, waiting.element),
      section("Its sources", {}, sources.element),
      section("Its state", {}, operators.element),
    ],
  });
  return {
    title: "Query",
    element: screen.element,
    close() {
      asking.stop();
      fresh.stop();
      for (const chart of [rates, lag, phases]) chart.stop();
    },
  };
}

function troubleOf(query) {
  if (!query.problem && !query.exception) return null;
  return h(
    "div",
    { class: `problem ${query.state === "failed" ? "critical" : "warning"}` },
    query.problem ? h("p", { class: "problem-what" }, sentence(query.problem)) : null,
    query.exception ? h("pre", { class: "text-block", tabindex: 0, role: "region", "aria-label": "Failure" }, query.exception) : null,
  );
}

function queryFacts(query) {
  return facts([
    ["State", queryState(query.state)],
    ["Micro-batch", count(query.batch_id)],
    ["In", `${short(query.input_rows_per_s)} rows/s`],
    ["Can do", `${short(query.processed_rows_per_s)} rows/s`],
    ["Took", `${duration(query.batch_duration_ms)}${query.trigger_ms ? ` of ${duration(query.trigger_ms)}` : ""}`],
    ["Lag", query.lag === null ? null : count(query.lag)],
    ["Last report", when(query.last_ms)],
    ["Runs", query.runs?.length > 1 ? `${query.runs.length}, this one since ${duration(Date.now() - query.runs.at(-1).first_ms)}` : null],
    ["Driver", query.host ? h("span", { class: "data" }, `${query.host}${query.app_id ? ` · ${query.app_id}` : ""}`) : null],
    ["Spark", query.spark_version],
    ["Query id", h("span", { class: "data name" }, query.id)],
  ]);
}

function sourceColumns() {
  return [
    { id: "topic", title: "Topic", cell: (row) => (row.topic ? link(addressOf(["topics", row.topic]), h("span", { class: "data name" }, row.topic)) : "–") },
    { id: "description", title: "Source", cell: (row) => h("span", { class: "data name" }, row.description ?? "–") },
    { id: "rows", title: "Rows of the last micro-batch", kind: "number", cell: (row) => count(row.input_rows) },
    { id: "lag", title: "Lag", kind: "number", cell: (row) => count(row.lag) },
    { id: "end", title: "Read to", wide: true, grow: true, cell: (row) => h("span", { class: "data name" }, row.end_offset ?? "–") },
  ];
}

function operatorColumns() {
  return [
    { id: "name", title: "Operator", cell: (row) => h("span", { class: "data" }, row.name) },
    { id: "rows", title: "Rows in state", kind: "number", cell: (row) => count(row.rows_total) },
    { id: "updated", title: "Rows changed last", kind: "number", cell: (row) => count(row.rows_updated) },
    { id: "memory", title: "Memory", kind: "number", cell: (row) => bytes(row.memory_bytes) },
  ];
}
