// The messages of a topic: found by place, time, key, value, header and fields; shown as lines or as a
// table of their fields; and followed as they come.

import { BadInput, get, messageOf, path, urlOf } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, many } from "../lib/format.js";
import { keepInAddress } from "../lib/router.js";
import { asSentence, button, sentence } from "../lib/words.js";
import { searchForm } from "./message_form.js";
import { messageRows } from "./message_rows.js";
import { waitingTable } from "./waiting.js";

const KEPT_ROWS = 500;
const FIRST_ANSWER_MS = 15_000;

export function messageSearch(topic, context) {
  const form = searchForm(topic, context.query, { search, tail });
  const rows = messageRows(topic, context);
  const progress = h("p", { class: "progress", role: "status" });
  const problem = h("p", { class: "form-problem", role: "alert", hidden: true });
  const onwards = button("Continue", () => searchOn(), { kind: "primary" });
  const foot = h("p", { class: "table-more", hidden: true }, onwards);
  const waiting = waitingTable("");
  const waitingPlace = h("div", { class: "waiting-place", hidden: true }, h("h2", {}, "A read_committed reader waits here"), waiting.element);
  let shown = [];
  let next = null;
  let under = null;
  let lastSearch = null;

  function begin() {
    under?.stop();
    under = null;
    problem.hidden = true;
    foot.hidden = true;
    waitingPlace.hidden = true;
    shown = [];
    rows.update(shown, null, { newestFirst: false });
    fill(progress, "Reading …");
  }

  /** What the form says; null when it says something that can't be asked, which is then shown. */
  function asked() {
    try {
      return form.parameters();
    } catch (error) {
      if (!(error instanceof BadInput)) throw error;
      failed(error);
      return null;
    }
  }

  function search() {
    begin();
    lastSearch = asked();
    if (lastSearch === null) return;
    keepInAddress(form.forAddress());
    run(lastSearch);
  }

  function run(parameters) {
    if (form.hasTerms()) follow(parameters, false);
    else under = askOnce(parameters);
  }

  function searchOn() {
    foot.hidden = true;
    run({ ...lastSearch, from: next.from });
  }

  function tail() {
    begin();
    const parameters = asked();
    if (parameters !== null) follow({ ...parameters, from: parameters.from === "earliest" ? "newest" : parameters.from, tail: 1 }, true);
  }

  function askOnce(parameters) {
    const stopper = new AbortController();
    get(path("topics", topic.name, "messages"), parameters, stopper.signal).then(
      (answer) => {
        under = null;
        shown = [...shown, ...answer.rows];
        rows.update(shown, answer.columns, { newestFirst: String(parameters.from).startsWith("newest") });
        ended(answer, scannedWords(answer.scanned, shown.length), answer.troubles?.[0] ?? null);
        if (answer.unanswered?.length) failed(new BadInput(answer.unanswered.map((each) => each.why).join(" ")));
      },
      (error) => {
        if (error.code === "ABORTED") return;
        under = null;
        failed(error);
      },
    );
    return { stop: () => stopper.abort() };
  }

  function follow(parameters, isTail) {
    let columns = null;
    let scanned = null;
    let skipped = 0;
    let trouble = null;
    const source = new EventSource(urlOf(`${path("topics", topic.name, "messages")}/stream`, parameters));
    const limit = setTimeout(() => fail(`The console's server did not begin to answer within ${FIRST_ANSWER_MS / 1000} s.`), FIRST_ANSWER_MS);
    const on = (event, handler) =>
      source.addEventListener(event, (message) => {
        clearTimeout(limit);
        handler(JSON.parse(message.data));
      });
    on("columns", (told) => (columns = told.columns));
    on("rows", (told) => {
      shown = isTail ? [...told.rows.slice().reverse(), ...shown].slice(0, KEPT_ROWS) : [...shown, ...told.rows];
      rows.update(shown, columns, { newestFirst: false });
      draw();
    });
    on("progress", (told) => {
      scanned = told.scanned;
      skipped = told.skipped ?? 0;
      draw();
    });
    on("trouble", (told) => {
      trouble = told.message;
      draw();
    });
    on("failed", (told) => fail(told.error?.message ?? "The search failed."));
    on("end", (told) => {
      stop();
      ended(told, scannedWords(scanned, shown.length), trouble);
    });
    source.onerror = () => fail("The connection to the console's server broke off. Is `headrace console` still running?");
    form.running(true);
    draw();
    under = { stop };

    function draw() {
      const words = isTail ? `Following new records; ${many(shown.length, "record")} shown.` : `Searching; ${many(shown.length, "record")} found. ${scannedWords(scanned, null)}`;
      fill(progress, h("span", { class: "live" }, words), skipped > 0 ? ` ${count(skipped)} came faster than they can be shown.` : null, trouble === null ? null : h("span", { class: "warn-text" }, " ", sentence(trouble)), " ", button("Stop", stopped));
    }

    function stop() {
      clearTimeout(limit);
      source.close();
      form.running(false);
      if (under?.stop === stop) under = null;
    }

    function stopped() {
      stop();
      fill(progress, `Stopped. ${many(shown.length, "record")} shown.`);
    }

    function fail(why) {
      stop();
      failed(new BadInput(why));
    }
  }

  function ended(answer, words, trouble) {
    next = answer.next ?? null;
    foot.hidden = next === null;
    fill(progress, words, answer.why ? [" ", sentence(asSentence(answer.why))] : null, trouble === null ? null : h("span", { class: "warn-text" }, " ", sentence(asSentence(trouble))));
    waitingPlace.hidden = !answer.waiting?.length;
    waiting.update(answer.waiting ?? []);
    rows.finished();
  }

  function failed(error) {
    fill(problem, sentence(messageOf(error)));
    problem.hidden = false;
    fill(progress);
  }

  search();
  return {
    element: h("div", { class: "messages" }, form.element, problem, progress, waitingPlace, rows.element, foot),
    stop: () => under?.stop(),
    // A tail shows it by itself.
    produced: () => under === null && search(),
  };
}

function scannedWords(scanned, found) {
  const seen = scanned === null || scanned === undefined ? "" : `${many(scanned.records, "record")} (${bytes(scanned.bytes)}) of ${many(Array.isArray(scanned.partitions) ? scanned.partitions.length : scanned.partitions, "partition")} looked at.`;
  return found === null ? seen : `${many(found, "record")} shown. ${seen}`;
}
