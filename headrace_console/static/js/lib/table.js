// Tables: sorted by the buttons in their heads, and kept in place when new values come: a row keeps its
// elements, so that focus and selection stay where they are. On a phone a row is a block of its values,
// each with its title; the roles are written down because a browser forgets them then.

import { h, fill, classes } from "./dom.js";
import { count, visible } from "./format.js";

const SHOWN_ROWS = 100;
const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/**
 * `columns`: each `{id, title, cell(row), sort?(row), kind?, wide?, grow?, hint?}`. `cell` gives a node or a
 * text; with `sort` the column can be sorted here, and with `onSort` by the server, for which it is
 * only true. `kind`: "number" stands to the right. `wide`: left out on a phone. `grow`: takes
 * the room that others leave.
 * `key(row)` tells rows apart. `empty`: what is said when there are none.
 * `order`: `{id, falling}`. `shown`: so many rows at first. Gives `{element, update(rows)}`.
 */
export function table({ columns, key, label, empty, order = null, onSort = null, shown: shownFirst = SHOWN_ROWS }) {
  let limit = onSort === null ? shownFirst : Infinity;
  let known = [];
  const kept = new Map();
  const body = h("tbody", { role: "rowgroup" });
  const heads = columns.map((column) => headCell(column, () => sortBy(column)));
  const more = h("button", { type: "button", on: { click: showMore } });
  const moreLine = h("p", { class: "table-more", hidden: true }, more);
  const nothing = h("p", { class: "empty", hidden: true });
  const scroll = h(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": label, hidden: true },
    h("table", { role: "table", class: classes("rows", !columns.some((column) => column.sort) && "unsortable") }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body),
  );
  const element = h("div", { class: "table-block" }, scroll, nothing, moreLine);
  markHeads();

  function sortBy(column) {
    const falling = order?.id === column.id ? !order.falling : column.kind === "number";
    order = { id: column.id, falling };
    markHeads();
    if (onSort !== null) onSort(order);
    else draw();
  }

  function markHeads() {
    columns.forEach((column, index) => {
      if (!column.sort) return;
      const state = order?.id === column.id ? (order.falling ? "descending" : "ascending") : "none";
      heads[index].setAttribute("aria-sort", state);
    });
  }

  function showMore() {
    limit *= 5;
    draw();
  }

  function inOrder() {
    const column = onSort === null && order && columns.find((each) => each.id === order.id);
    if (!column) return known;
    const sign = order.falling ? -1 : 1;
    return [...known].sort((a, b) => compare(column.sort(a), column.sort(b), sign));
  }

  function draw() {
    const shown = inOrder().slice(0, limit);
    const names = namesOf(shown);
    dropOthers(new Set(names));
    let before = null;
    for (const [index, row] of shown.entries()) {
      const line = lineOf(row, names[index]);
      const next = before === null ? body.firstChild : before.nextSibling;
      if (line !== next) body.insertBefore(line, next);
      before = line;
    }
    const left = known.length - shown.length;
    moreLine.hidden = left <= 0;
    if (left > 0) more.textContent = `Show ${count(Math.min(left, limit * 4))} more of ${count(known.length)}`;
    nothing.hidden = known.length > 0;
    scroll.hidden = known.length === 0;
    if (known.length === 0) fill(nothing, typeof empty === "function" ? empty() : empty);
  }

  /** Rows that can't be told apart are all shown: the second is another one. */
  function namesOf(rows) {
    const seen = new Map();
    return rows.map((row) => {
      const name = String(key(row));
      const times = (seen.get(name) ?? 0) + 1;
      seen.set(name, times);
      return times === 1 ? name : JSON.stringify([name, times]);
    });
  }

  function dropOthers(wanted) {
    for (const [name, entry] of kept) {
      if (wanted.has(name)) continue;
      entry.line.remove();
      kept.delete(name);
    }
  }

  function lineOf(row, name) {
    const entry = kept.get(name) ?? newLine(name);
    columns.forEach((column, index) => {
      const content = column.cell(row);
      const isNode = content instanceof Node;
      const told = isNode ? content.outerHTML : visible(content ?? "–");
      if (entry.told[index] === told) return;
      entry.told[index] = told;
      entry.cells[index].replaceChildren(isNode ? content : told);
      entry.cells[index].classList.toggle("none", told === "–");
    });
    return entry.line;
  }

  function newLine(name) {
    const cells = columns.map((column, index) =>
      h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, role: index === 0 ? "rowheader" : "cell", class: cellClass(column), "data-title": column.title }),
    );
    const entry = { line: h("tr", { role: "row" }, cells), cells, told: [] };
    kept.set(name, entry);
    return entry;
  }

  return {
    element,
    update(rows) {
      known = rows;
      draw();
    },
  };
}

function cellClass(column) {
  return classes(column.kind, column.wide && "wide-only", column.grow && "grow") || null;
}

function headCell(column, onSort) {
  const content = column.sort
    ? h(
        "button",
        { type: "button", class: "sort", title: column.hint ?? null, on: { click: onSort } },
        column.title,
        h("span", { class: "sort-mark", "aria-hidden": "true" }),
      )
    : h("span", { title: column.hint ?? null }, column.title);
  return h("th", { scope: "col", role: "columnheader", class: classes(cellClass(column), !column.sort && "unsorted") }, content);
}

/** Numbers by size, texts as people sort them; what is not known comes last in either order. */
export function compare(a, b, sign = 1) {
  const aIsNone = a === null || a === undefined;
  const bIsNone = b === null || b === undefined;
  if (aIsNone || bIsNone) return Number(aIsNone) - Number(bIsNone);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * natural.compare(String(a), String(b));
}
