// Long lists, of which the server sends one page: found by name, sorted by the server, turned over,
// and asked for anew while they are open.

import { h, setText } from "./dom.js";
import { get } from "./api.js";
import { count } from "./format.js";
import { keepAsking } from "./live.js";
import { table } from "./table.js";

const PAGE_ROWS = 50;
const TYPING_MS = 250;

/**
 * `where`: the path of the list. `columns` as for `table`; `order` is the first order. `extra()`: more
 * parameters of the request. `fresh`: told of each answer. `onAnswer(answer)`: before its rows are shown.
 * Gives `{element, again(), stop()}`.
 */
export function pagedList({
  where, columns, key, label, empty, noun, order = null, everyMs = 5000, extra = () => ({}),
  findLabel = "Find by name", canFind = true, fresh = null, onAnswer = null, controls = [],
}) {
  let offset = 0;
  let filter = "";
  let typing = null;
  const rows = table({
    columns, key, label, order,
    empty: () => (filter === "" ? empty : `No ${noun} whose name contains “${filter}”.`),
    onSort(wanted) {
      order = wanted;
      offset = 0;
      asking.again();
    },
  });
  const find = h("input", {
    type: "search", class: "find", placeholder: findLabel, "aria-label": findLabel, autocomplete: "off", spellcheck: "false",
    on: { input: () => typed() },
  });
  const position = h("span", { class: "position", role: "status" });
  const back = h("button", { type: "button", disabled: true, on: { click: () => turn(-PAGE_ROWS) } }, "Previous");
  const onwards = h("button", { type: "button", disabled: true, on: { click: () => turn(PAGE_ROWS) } }, "Next");
  const pager = h("div", { class: "pager", hidden: true }, position, back, onwards);
  const bar = h("div", { class: "list-bar" }, canFind ? find : null, controls, pager);
  const asking = keepAsking((signal) => get(where, query(), signal), {
    everyMs,
    show,
    failed: (error, since) => fresh?.failed(error, since),
  });

  function query() {
    const sort = order === null ? null : `${order.falling ? "-" : ""}${order.id}`;
    return { offset, limit: PAGE_ROWS, filter, sort, ...extra() };
  }

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      filter = find.value.trim();
      offset = 0;
      asking.again();
    }, TYPING_MS);
  }

  function turn(by) {
    offset = Math.max(0, offset + by);
    asking.again();
  }

  function show(answer) {
    if (answer.rows.length === 0 && answer.total > 0 && offset > 0) {
      offset = 0;
      asking.again();
      return;
    }
    onAnswer?.(answer);
    rows.update(answer.rows);
    const last = answer.offset + answer.rows.length;
    const isOne = answer.total <= answer.rows.length;
    setText(position, isOne ? `${count(answer.total)} in all` : `${count(answer.offset + 1)}–${count(last)} of ${count(answer.total)}`);
    pager.hidden = answer.total === 0;
    back.hidden = onwards.hidden = isOne;
    back.disabled = answer.offset === 0;
    onwards.disabled = last >= answer.total;
    fresh?.shown(answer.as_of_ms, answer.unanswered);
  }

  return {
    element: h("div", { class: "list" }, bar, rows.element),
    again() {
      offset = 0;
      asking.again();
    },
    stop() {
      clearTimeout(typing);
      asking.stop();
    },
  };
}
