// Rejected records: which topics hold them, why they were rejected, and sending them back.

import { BadInput, get, messageOf, path, send } from "../lib/api.js";
import { field, formDialog, input, whole } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { count, duration, many } from "../lib/format.js";
import { keepAsking } from "../lib/live.js";
import { pagedList } from "../lib/paged.js";
import { addressOf } from "../lib/router.js";
import { table } from "../lib/table.js";
import { freshness, link, screenHead, section } from "../lib/words.js";

const NOTE = "A query that uses connector.with_dead_letters writes what it rejects to such a topic, as it came, with the reason and its origin in the headers. Replaying sends records back to the topics that they came from, each once.";

export function openDeadLetters(topic, context) {
  if (topic === null) return listOfTopics();
  return context.readOnly ? topicOnly(topic) : oneTopic(topic);
}

const above = [["Queries", "#/queries"], ["Dead letters", "#/dead-letters"]];
const messagesOf = (topic) => link(addressOf(["topics", topic]), "Its messages");

/** Where nothing may be changed. */
function topicOnly(topic) {
  return {
    title: `${topic} – dead letters`,
    element: h(
      "div",
      {},
      screenHead(topic, { above, actions: [messagesOf(topic)] }),
      h("p", { class: "note" }, NOTE),
      h("p", {}, "This console is read-only. The command ", h("code", {}, `headrace replay-dead-letters ${topic} --dry-run`), " counts the records by reason; without --dry-run it sends them back."),
    ),
  };
}

function listOfTopics() {
  const fresh = freshness();
  const list = pagedList({
    where: "/dead-letters",
    label: "Topics with dead letters",
    noun: "topic",
    empty: "No topic with dead letters is known.",
    key: (row) => row.topic,
    fresh,
    columns: [
      { id: "topic", title: "Topic", cell: (row) => link(addressOf(["dead-letters", row.topic]), h("span", { class: "data name" }, row.topic)) },
      { id: "records", title: "Records", kind: "number", cell: (row) => count(row.records) },
    ],
  });
  return {
    title: "Dead letters",
    element: h("div", {}, screenHead("Dead letters", { above: [["Queries", "#/queries"]], fresh: fresh.element }), h("p", { class: "note" }, NOTE), list.element),
    close() {
      list.stop();
      fresh.stop();
    },
  };
}

function oneTopic(topic) {
  const topics = input("topics", { placeholder: "all" });
  const since = input("since", { type: "datetime-local", step: 1 });
  const until = input("until", { type: "datetime-local", step: 1 });
  const reason = input("reason");
  const limit = input("limit", { inputmode: "numeric" });
  const problem = h("p", { class: "form-problem", role: "alert", hidden: true });
  const result = h("div", { role: "status" });
  const submit = h("button", { type: "submit", class: "primary" }, "Count");
  let watching = null;
  let closed = false;

  async function survey(event) {
    event.preventDefault();
    submit.disabled = true;
    problem.hidden = true;
    fill(result, h("p", {}, "Reading the topic …"));
    try {
      const preview = await send("POST", path("dead-letters", topic, "preview"), {
        topics: topics.value.split(/[\s,]+/).filter((each) => each !== ""),
        since_ms: msOf(since), until_ms: msOf(until),
        reason: reason.value === "" ? null : reason.value,
        limit: whole(limit, "At most"),
      });
      fill(result, surveyed(topic, preview, replayed));
    } catch (error) {
      fill(result);
      fill(problem, messageOf(error));
      problem.hidden = false;
    }
    submit.disabled = false;
  }

  async function ask(id, button) {
    button.disabled = true;
    try {
      await send("DELETE", path("replays", id), {});
    } catch (error) {
      fill(problem, messageOf(error));
      problem.hidden = false;
    }
  }

  /** One that was begun before, perhaps by somebody else. */
  async function resume() {
    try {
      const { rows } = await get(path("dead-letters", topic, "replays"), {});
      const running = rows.find((each) => each.state === "running");
      if (running !== undefined && watching === null && !closed) replayed(running);
    } catch {
      // What can be done here does not need it.
    }
  }

  function replayed({ replay_id: id }) {
    watching?.stop();
    const line = h("p", {}, "The replay has begun.");
    const stop = h("button", { type: "button", on: { click: () => void ask(id, stop) } }, "Stop it");
    fill(result, line, h("p", {}, stop));
    watching = keepAsking((signal) => get(path("replays", id), {}, signal), {
      everyMs: 1000,
      failed: (error) => error && fill(line, messageOf(error)),
      show(replay) {
        const sent = `${count(replay.sent)} of ${many(replay.selected, "record")} sent back.`;
        fill(line, replayWords(replay, sent));
        line.className = { failed: "form-problem", stopped: "form-problem", done: "all-well" }[replay.state] ?? "";
        stop.hidden = replay.state !== "running";
        if (replay.state !== "running") watching.stop();
      },
    });
  }

  void resume();
  return {
    title: `${topic} – dead letters`,
    element: h(
      "div",
      {},
      screenHead(topic, { above, actions: [messagesOf(topic)] }),
      h("p", { class: "note" }, NOTE),
      section(
        "Which dead letters to replay",
        {},
        h(
          "form",
          { class: "search-form", on: { submit: (event) => void survey(event) } },
          h("div", { class: "form-row" }, field("Of topics", topics, "with commas"), field("Written since", since), field("Written until", until), field("Reason matches", reason, "a regular expression"), field("At most", limit, "empty: all"), h("div", { class: "form-buttons" }, submit)),
        ),
        problem,
        result,
      ),
    ),
    close() {
      closed = true;
      watching?.stop();
    },
  };
}

function replayWords(replay, sent) {
  const by = replay.user === null ? "" : `, begun by ${replay.user}`;
  const again = "Start it again: what was sent is not sent twice.";
  return {
    failed: `The replay failed: ${replay.message} ${sent} ${again}`,
    stopped: `The replay was ended: ${replay.message}. ${sent} ${again}`,
    done: `Done: ${sent}`,
  }[replay.state] ?? `Replaying${by}: ${sent} It ends when you log out, or close the browser for half an hour.`;
}

function msOf(control) {
  // A date of which a part is missing has no value: all times would be meant.
  if (control.validity.badInput) throw new BadInput("Give a date and a time, or neither.");
  const ms = new Date(control.value).getTime();
  return Number.isNaN(ms) ? null : ms;
}

function surveyed(topic, preview, replayed) {
  const kinds = table({
    label: "Dead letters by reason",
    empty: "No dead letter matches.",
    key: (row) => `${row.topic} ${row.reason}`,
    columns: [
      { id: "reason", title: "Reason", grow: true, sort: (row) => row.reason, cell: (row) => h("span", { class: "data name" }, row.reason ?? "none given") },
      { id: "topic", title: "Came from", sort: (row) => row.topic, cell: (row) => (row.topic ? link(addressOf(["topics", row.topic]), h("span", { class: "data name" }, row.topic)) : "–") },
      { id: "count", title: "Records", kind: "number", sort: (row) => row.count, cell: (row) => count(row.count) },
    ],
  });
  kinds.update(preview.kinds);
  const ask = h("button", { type: "button", class: "primary", disabled: preview.selected === 0, on: { click: () => confirmReplay(topic, preview, replayed) } }, `Replay ${many(preview.selected, "record")}`);
  return h(
    "div",
    { class: "stack" },
    h("p", {}, `${many(preview.waiting, "dead letter")} not sent back yet; ${count(preview.selected)} match.`, preview.without_origin > 0 ? ` ${count(preview.without_origin)} name no origin and stay.` : ""),
    kinds.element,
    h("p", {}, ask),
  );
}

function confirmReplay(topic, preview, replayed) {
  formDialog({
    title: `Replay ${many(preview.selected, "record")}`,
    intro: h("p", {}, `The records are written again to the topics that they came from. Readers of these topics get them as new records. This count holds for ${duration(preview.expires_ms - Date.now())}.`),
    typed: topic,
    action: "Replay",
    send: () => send("POST", path("dead-letters", topic, "replay"), { preview_id: preview.preview_id, confirm: topic }),
    done: replayed,
  });
}
