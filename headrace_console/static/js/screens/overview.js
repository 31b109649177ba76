// The first look: what is wrong now and what to do, then brokers, traffic, and what has happened lately.

import { lineChart } from "../charts/lines.js";
import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, clock, count, duration, iso, many, moment, short } from "../lib/format.js";
import { keepAsking } from "../lib/live.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { freshness, gauge, link, screenHead, section, sentence, state, when } from "../lib/words.js";
import { eventList } from "./events.js";

const EVERY_MS = 1000; // What is wrong is shown within 5 s: the console itself looks every two to three.
const DAY_MS = 86_400_000;

export function openOverview() {
  const fresh = freshness();
  const problems = h("div", { class: "problems", role: "status" });
  const figures = h("div", { class: "figures" });
  const brokers = brokerTable();
  const records = lineChart({ title: "Records written per second", series: [{ name: "records/s", tone: 1 }], format: short, empty: "The console measures from its start on: the first figures come in some seconds." });
  const traffic = lineChart({ title: "Bytes written per second", series: [{ name: "bytes/s", tone: 2 }], format: bytes, empty: "The sizes of logs are not known here, or not yet." });
  const events = eventList("Nothing has changed since the console started.");
  let told = null;

  const asking = keepAsking((signal) => get("/overview", {}, signal), {
    everyMs: EVERY_MS,
    failed: (error, since) => fresh.failed(error, since),
    show(overview) {
      fresh.shown(overview.as_of_ms, overview.unanswered);
      const text = JSON.stringify(overview.problems);
      if (text !== told) {
        told = text;
        fill(problems, problemList(overview.problems));
      }
      fill(figures, keyFigures(overview));
      brokers.update(overview.brokers);
      const history = overview.traffic?.history ?? [];
      records.update(history.map((each) => ({ at: each.at_ms, values: [each.records_per_s] })));
      traffic.update(history.some((each) => each.bytes_per_s !== null) ? history.map((each) => ({ at: each.at_ms, values: [each.bytes_per_s] })) : []);
      events.update(overview.recent ?? []);
    },
  });

  return {
    title: "Overview",
    element: h(
      "div",
      {},
      screenHead("Overview", { fresh: fresh.element }),
      h("section", { class: "block", "aria-label": "Problems" }, problems),
      figures,
      section("Brokers", {}, brokers.element),
      section("Traffic", {}, h("div", { class: "charts" }, records.element, traffic.element)),
      section("Lately", { actions: link("#/timeline", "Timeline") }, events.element),
    ),
    close() {
      asking.stop();
      fresh.stop();
      records.stop();
      traffic.stop();
    },
  };
}

function problemList(problems) {
  if (problems.length === 0) return h("p", { class: "all-well" }, "There are no problems.");
  return h("ul", {}, problems.map(problemItem));
}

function problemItem(problem) {
  const more = problem.count - (problem.subjects?.length ?? 0);
  return h(
    "li",
    { class: `problem ${problem.severity}` },
    h("p", { class: "problem-what" }, h("span", { class: "severity" }, problem.severity === "critical" ? "Critical" : "Warning"), " ", sentence(problem.what)),
    h("p", { class: "problem-do" }, sentence(problem.do)),
    h(
      "p",
      { class: "problem-foot" },
      problem.since_ms === null ? null : h("span", {}, "since ", h("time", { datetime: iso(problem.since_ms), title: moment(problem.since_ms) }, clock(problem.since_ms))),
      problem.link?.startsWith("#/") ? link(problem.link, "Open") : null,
      problem.subjects?.length > 1
        ? h("span", { class: "data subjects" }, problem.subjects.join(", "), more > 0 ? ` and ${count(more)} more` : "")
        : null,
    ),
  );
}

function keyFigures({ brokers, partitions, traffic, controller }) {
  const up = brokers.filter((each) => each.state === "up").length;
  const refusing = partitions.under_min_isr ?? 0;
  return [
    figure("Brokers up", `${count(up)} of ${count(brokers.length)}`, up < brokers.length ? "bad" : null),
    figure("Controller", controller === null ? "none" : `broker ${controller}`, controller === null ? "bad" : null),
    figure("Partitions", count(partitions.total), null, many(partitions.topics, "topic")),
    figure("Without a leader", count(partitions.without_leader), partitions.without_leader > 0 ? "bad" : null),
    figure("Under-replicated", count(partitions.under_replicated), refusing > 0 ? "bad" : partitions.under_replicated > 0 ? "warn" : null, refusing > 0 ? `${count(refusing)} refuse acks=all` : null),
    figure("Written", `${short(traffic?.records_per_s)} rec/s`, null, traffic?.bytes_per_s === null || traffic?.bytes_per_s === undefined ? null : `${bytes(traffic.bytes_per_s)}/s`),
  ];
}

function figure(term, value, tone, more = null) {
  return h("div", { class: `figure ${tone ?? ""}` }, h("span", { class: "figure-term" }, term), h("span", { class: "figure-value" }, value), more === null ? null : h("span", { class: "figure-more" }, more));
}

const STATES = { up: ["good", "up"], offline: ["bad", "offline"], silent: ["warn", "does not answer"] };

function brokerTable() {
  return table({
    label: "Brokers",
    key: (row) => row.id,
    empty: "No broker is known.",
    order: { id: "id", falling: false },
    columns: [
      { id: "id", title: "Broker", sort: (row) => row.id, cell: (row) => link(addressOf(["brokers", row.id]), `broker ${row.id}`) },
      { id: "state", title: "State", sort: (row) => row.state, cell: brokerState },
      { id: "address", title: "Address", cell: (row) => (row.host === null || row.host === undefined ? "–" : h("span", { class: "data" }, `${row.host}:${row.port}`)), sort: (row) => `${row.host}:${row.port}` },
      { id: "rack", title: "Rack", wide: true, sort: (row) => row.rack, cell: (row) => row.rack ?? "–" },
      { id: "leaders", title: "Leads", kind: "number", sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
      { id: "replicas", title: "Replicas", kind: "number", sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
      { id: "disk", title: "Disks", cell: (row) => disks(row.disk ?? []), sort: (row) => Math.min(...(row.disk ?? []).map((each) => each.free_bytes ?? Infinity)) },
      { id: "certificate", title: "Certificate", wide: true, sort: (row) => row.certificate_expires_ms, cell: (row) => certificate(row.certificate_expires_ms) },
    ],
  });
}

function brokerState(row) {
  const [tone, word] = STATES[row.state] ?? ["still", row.state];
  return h("span", {}, state(tone, word), row.is_controller ? h("span", { class: "badge" }, "controller") : null, row.state === "up" || !row.last_seen_ms ? null : h("span", { class: "note" }, " last seen ", when(row.last_seen_ms)));
}

function disks(list) {
  if (list.length === 0) return "–";
  return h(
    "div",
    { class: "disks" },
    list.map((each) => {
      if (each.error) return h("span", { class: "disk" }, h("span", { class: "data name" }, each.path), state("bad", each.error));
      if (each.total_bytes === null || each.total_bytes === undefined) return h("span", { class: "disk", title: each.path }, `logs ${bytes(each.used_by_log_bytes)}`);
      const used = each.total_bytes - each.free_bytes;
      return h(
        "span",
        { class: "disk", title: each.path },
        gauge(used, each.total_bytes, `${each.path}: ${bytes(each.free_bytes)} free of ${bytes(each.total_bytes)}`),
        h("span", {}, `${bytes(each.free_bytes)} free`),
        h("span", { class: "note" }, `logs ${bytes(each.used_by_log_bytes)}`),
      );
    }),
  );
}

function certificate(expiresMs) {
  if (expiresMs === null || expiresMs === undefined) return "–";
  const left = expiresMs - Date.now();
  if (left <= 0) return state("bad", "expired");
  return left < 30 * DAY_MS ? state("warn", `${duration(left)} left`) : `${Math.floor(left / DAY_MS)} days left`;
}
