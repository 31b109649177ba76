// The record batches of a partition: what was written together, compressed how, by whom.

import { get, messageOf, path } from "../lib/api.js";
import { input, select } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, percent } from "../lib/format.js";
import { table } from "../lib/table.js";
import { exactly, sentence, state } from "../lib/words.js";

export function batchList(topic, { query }) {
  const partition = input("partition", { type: "number", min: 0, max: topic.partitions - 1, value: query.get("partition") ?? "0" });
  const begin = select("begin", [["newest", "the newest"], ["offset", "offset"]], query.has("offset") ? "offset" : "newest", () => (offset.hidden = begin.value !== "offset"));
  const offset = input("offset", { type: "text", inputmode: "numeric", value: query.get("offset") ?? "", placeholder: "offset", "aria-label": "Offset", hidden: !query.has("offset") });
  const problem = h("p", { class: "form-problem", role: "alert", hidden: true });
  const rows = table({ label: `Record batches of ${topic.name}`, empty: "There is no batch here.", key: (row) => `${row.partition}-${row.base_offset}`, columns: batchColumns() });
  const onwards = h("button", { type: "button", hidden: true, on: { click: () => void ask(next.from) } }, "Next batches");
  let next = null;
  let stopped = new AbortController();

  async function ask(from) {
    stopped.abort();
    stopped = new AbortController();
    problem.hidden = true;
    try {
      const answer = await get(path("topics", topic.name, "batches"), { partition: partition.value, from, limit: 50 }, stopped.signal);
      // The newest on top where they were asked for; else in the order of the log.
      rows.update(from === "newest" ? answer.rows.slice().sort((a, b) => b.base_offset - a.base_offset) : answer.rows);
      next = answer.next;
      onwards.hidden = next === null || next === undefined;
    } catch (error) {
      if (error.code === "ABORTED") return;
      fill(problem, messageOf(error));
      problem.hidden = false;
    }
  }

  const start = () => void ask(begin.value === "offset" ? `offset:${offset.value.trim()}` : "newest");
  start();
  return {
    element: h(
      "div",
      {},
      h("p", { class: "note" }, "Producers send records in batches. Brokers store a batch as it came, compressed, and never decode single records; this page shows what is on the disk."),
      h(
        "form",
        { class: "inline-form", on: { submit: (event) => { event.preventDefault(); start(); } } },
        h("label", {}, "Partition ", partition),
        h("label", {}, "From ", begin),
        offset,
        h("button", { type: "submit", class: "primary" }, "Show"),
      ),
      problem,
      rows.element,
      h("p", {}, onwards),
    ),
    stop: () => stopped.abort(),
  };
}

function batchColumns() {
  return [
    { id: "offsets", title: "Offsets", cell: (row) => h("span", { class: "data" }, `${count(row.base_offset)} – ${count(row.last_offset)}`) },
    { id: "records", title: "Records", kind: "number", sort: (row) => row.records, cell: (row) => count(row.records) },
    { id: "size", title: "On disk", kind: "number", sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
    { id: "codec", title: "Codec", cell: codec },
    { id: "kind", title: "Kind", cell: kindOf },
    { id: "time", title: "Newest record", wide: true, cell: (row) => exactly(row.max_timestamp_ms) },
    { id: "producer", title: "Producer", wide: true, cell: (row) => (row.producer_id === null ? "–" : h("span", { class: "data" }, `${row.producer_id}, epoch ${row.producer_epoch}`)) },
    { id: "words", title: "Description", grow: true, cell: (row) => h("span", { class: "words" }, sentence(row.words)) },
  ];
}

function codec(row) {
  if (row.codec === "none") return "none";
  const part = row.uncompressed_bytes ? ` ${percent(row.size_bytes, row.uncompressed_bytes)}` : "";
  return h("span", { title: row.uncompressed_bytes ? `${bytes(row.uncompressed_bytes)} before` : null }, row.codec, h("span", { class: "note" }, part));
}

function kindOf(row) {
  if (row.crc_ok === false) return state("bad", "damaged");
  if (row.control) return h("span", { class: "badge alone" }, `marker: ${row.control}`);
  return h("span", {}, row.typed ? "columns" : "records", row.transactional ? h("span", { class: "badge" }, "transaction") : null);
}

/** The batch of one record, in a sentence and in figures. */
export function batchWords(batch) {
  if (batch === null || batch === undefined) return null;
  return h(
    "div",
    { class: "batch-words" },
    h("p", {}, sentence(batch.words)),
    h("p", { class: "note" }, `Offsets ${count(batch.base_offset)} to ${count(batch.last_offset)}, ${bytes(batch.size_bytes)} on the disk`, batch.uncompressed_bytes ? `, ${bytes(batch.uncompressed_bytes)} before ${batch.codec}` : "", `, leader epoch ${batch.leader_epoch}.`),
  );
}
