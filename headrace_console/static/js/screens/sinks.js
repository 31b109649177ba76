// Exactly-once sinks: their last commits with their tasks, and the members that write now.

import { fill, h } from "../lib/dom.js";
import { count, duration } from "../lib/format.js";
import { pagedList } from "../lib/paged.js";
import { table } from "../lib/table.js";
import { exactly, facts, state, when } from "../lib/words.js";

const UNHEARD = "The cluster knows that the sink has committed, as above. Single commits, with their tasks and times, come from a listener in Spark's driver; a listener that was added over Spark Connect runs elsewhere and gets none.";

export function sinkList() {
  return pagedList({
    where: "/sinks",
    label: "Sinks",
    noun: "sink",
    empty: "No exactly-once sink has written yet.",
    key: (row) => JSON.stringify([row.sink, row.query]),
    everyMs: 5000,
    columns: [
      { id: "sink", title: "Sink", cell: (row) => h("span", { class: "data name" }, row.sink) },
      { id: "query", title: "Query", wide: true, cell: (row) => h("span", { class: "data name" }, row.query) },
      { id: "last_batch", title: "Last micro-batch", kind: "number", cell: (row) => count(row.last_batch) },
      { id: "rows", title: "Its rows", kind: "number", cell: (row) => count(row.rows) },
      { id: "committed", title: "Committed", cell: (row) => when(row.committed_ms) },
      { id: "open", title: "Writing tasks", kind: "number", cell: (row) => count(row.open_members_total) },
      { id: "markers", title: "Markers missing", kind: "number", wide: true, cell: (row) => (row.markers_missing > 0 ? state("warn", count(row.markers_missing)) : count(row.markers_missing)), hint: "Partitions on which the commit is decided, but its marker is not written yet" },
      { id: "coordinator", title: "Coordinator", wide: true, grow: true, cell: (row) => (row.coordinator === null ? "–" : `broker ${row.coordinator}`) },
    ],
  });
}

/** Of one query. `update(query)`. */
export function sinkParts() {
  const told = h("div");
  const unheard = h("p", { class: "note", hidden: true }, UNHEARD);
  const commits = table({
    label: "Last commits of the sink",
    shown: 8,
    empty: "No listener has reported a commit yet.",
    key: (row) => `${row.batch_id} ${row.at_ms}`,
    columns: [
      { id: "batch", title: "Micro-batch", kind: "number", cell: (row) => count(row.batch_id) },
      { id: "at", title: "Committed", cell: (row) => exactly(row.at_ms) },
      { id: "tasks", title: "Tasks", kind: "number", cell: (row) => count(row.tasks) },
      { id: "rows", title: "Rows", kind: "number", cell: (row) => count(row.rows) },
      { id: "took", title: "Commit took", kind: "number", cell: (row) => duration(row.duration_ms) },
      { id: "outcome", title: "Outcome", grow: true, cell: outcome },
    ],
  });
  const members = table({
    label: "Tasks that write now",
    empty: "No task writes at the moment.",
    key: (row) => `${row.producer_id}-${row.epoch}`,
    columns: [
      { id: "member", title: "Member", cell: (row) => h("span", { class: "data" }, `producer ${row.producer_id}, epoch ${row.epoch}`) },
      { id: "batch", title: "Micro-batch", kind: "number", cell: (row) => count(row.batch) },
      { id: "state", title: "State", cell: (row) => (row.state === "aborting" ? state("warn", "is aborted") : state("good", "open")) },
      { id: "idle", title: "Idle for", kind: "number", cell: (row) => duration(row.idle_ms) },
      { id: "timeout", title: "Transaction timeout", kind: "number", cell: (row) => duration(row.timeout_ms) },
      { id: "partitions", title: "Writes to", grow: true, cell: (row) => h("span", { class: "data name" }, row.partitions.map((each) => `${each.topic}-${each.partition}`).join(", ") || "–") },
    ],
  });
  return {
    element: h("div", {}, told, h("h3", {}, "Last commits"), unheard, commits.element, h("h3", {}, "Tasks that write now"), members.element),
    update(query) {
      const sink = query.sink_state;
      fill(told, sink ? sinkFacts(sink) : h("p", { class: "note" }, query.sink_id ? "The cluster knows nothing of this sink." : `Its sink: ${query.sink?.description ?? "not told"}. It is not an exactly-once sink of Headrace, or has not written yet.`));
      const heard = sink?.commits ?? query.commits ?? [];
      unheard.hidden = heard.length > 0 || sink === null || sink.last_batch === null;
      commits.update(heard);
      members.update(sink?.open_members ?? []);
    },
  };
}

function outcome(row) {
  if (row.outcome === "already committed") return h("span", {}, state("still", "already committed"), h("span", { class: "note" }, " a replay, whose rows were dropped"));
  return state("good", row.outcome ?? "committed");
}

function sinkFacts(sink) {
  return facts([
    ["Sink", h("span", { class: "data name" }, sink.sink)],
    ["Last micro-batch", count(sink.last_batch)],
    ["Its rows", count(sink.rows)],
    ["Committed", sink.committed_ms ? when(sink.committed_ms) : null],
    ["Markers missing", sink.markers_missing > 0 ? state("warn", count(sink.markers_missing)) : "none"],
    ["Tasks that write", count(sink.open_members_total)],
    ["Coordinator", sink.coordinator === null ? null : `broker ${sink.coordinator}`],
    ["Run", sink.run_id ? h("span", { class: "data name" }, sink.run_id) : null],
  ]);
}
