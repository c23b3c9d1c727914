// Tables: sorted by the address, 100 lines at a time, cards on narrow screens. Rows can be chosen.
//
// In a column, value(row) is sorted by and cell(value, row) shown. Equal rows are not rendered again.
import { Component, html, useEffect, useLayoutEffect, useMemo, useRef, useUpdates } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { announce, bdi, button, hostLink, nodeLink, number, plural } from "./widgets.js";

export const LINES = 100;
const ORDERS = { ascending: "▲", descending: "▼" };

const collator = new Intl.Collator("en", { numeric: true });

export const column = (id, title, cell = bdi, value = (row) => row[id]) => ({ id, title, cell, value });
export const numeric = (id, title, cell = number, value = undefined) => ({ ...column(id, title, cell, value), isNumeric: true });

export const hostOf = ({ host, host_name: name }) => host ?? name;

export const HOST = column("host", "Host", (host) => host && hostLink(host));

// The column of nodes; a row without nodename is about its host.
export const NODE = column("node", "Node", (nodename, row) => (nodename ? nodeLink(row) : row.host && "whole host"), ({ nodename }) => nodename);

export function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(a ?? "", b ?? "");
}

// Return the rows in the order of a column: "cpu", or "-cpu" for descending.
function sortRows(rows, columns, sort) {
  const by = columns.find(({ id }) => id === sort.replace("-", ""));
  if (!by) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const pairs = rows.map((row) => [by.value(row), row]).sort(([a], [b]) => sign * compare(a, b));
  return pairs.map(([, row]) => row);
}

// What is chosen in the tables of this view: name -> row.
let chosen = new Map();
const listeners = new Set();

export function choose(changed) {
  chosen = new Map(changed);
  for (const update of listeners) update();
}

export const readChosen = () => chosen;

export function useChosen() {
  useUpdates(listeners);
  return chosen;
}

function setChosen(named, isChosen) {
  const others = [...chosen].filter(([name]) => !named.some(([each]) => each === name));
  choose(isChosen ? [...others, ...named] : others);
}

const box = (label, named, isChosen) => html`<input type="checkbox" aria-label=${label} checked=${isChosen}
  onChange=${({ target }) => setChosen(named, target.checked)} />`;

class Row extends Component {
  shouldComponentUpdate({ row, columns, isChosen }) {
    return row !== this.props.row || columns !== this.props.columns || isChosen !== this.props.isChosen;
  }

  render({ row, columns, classOf, nameOf, isChosen }) {
    return html`<tr class=${classOf?.(row)} data-host=${hostOf(row)}>${nameOf && html`<td class="choose" data-title="Choose">${
      box(`Choose ${nameOf(row)}`, [[nameOf(row), row]], isChosen)}</td>`}${columns.map(({ title, isNumeric, cell, value }) => html`<td data-title=${title}
      class=${isNumeric && "number"}>${cell(value(row), row)}</td>`)}</tr>`;
  }
}

function heading({ id, title, isNumeric, sortKey }, sort, order) {
  const direction = { [id]: "ascending", [`-${id}`]: "descending" }[sort];
  const canSort = order === "local" || (order === "api" && sortKey);
  // Amounts are sorted from the largest first.
  const next = direction === "ascending" || (isNumeric && !direction) ? `-${id}` : id;
  const text = html`${title}<span aria-hidden="true" class="sign">${ORDERS[direction]}</span>`;
  return html`<th scope="col" class=${isNumeric && "number"} aria-sort=${canSort ? direction ?? "none" : undefined}>
    ${canSort ? button(text, () => setQuery({ sort: next, marker: "" }), { class: "sort" }) : title}</th>`;
}

function pager(page, pages, count) {
  // A button without a use is not disabled, so that it keeps the focus.
  const step = (text, to) => button(text, () => to >= 1 && to <= pages && setQuery({ page: to > 1 && to }), { "aria-disabled": to < 1 || to > pages });
  return pages > 1 && html`<nav class="pager" aria-label="Pages of the table">${step("Previous", page - 1)}
    <span>${number((page - 1) * LINES + 1)}–${number(Math.min(count, page * LINES))} of ${number(count)}</span>
    ${step("Next", page + 1)}</nav>`;
}

export const fixed = (caption, columns, rows, more) => html`<${Table} order="none" caption=${caption} columns=${columns} rows=${rows} ...${more} />`;

// Keep the focus in a table whose rows are moved or replaced.
function useFocus(table) {
  const last = useRef(null); // {element, index of its row}
  const note = ({ target }) => {
    last.current = { element: target, index: target.closest("tbody tr")?.sectionRowIndex ?? -1 };
  };
  const forget = () => setTimeout(() => { // unless the next rendering has brought it back
    if (!table.current?.contains(document.activeElement)) last.current = null;
  });
  useLayoutEffect(() => {
    if (!last.current || document.activeElement !== document.body) return;
    const { element, index } = last.current;
    const rows = table.current?.tBodies[0].rows ?? [];
    if (element.isConnected) element.focus({ preventScroll: true });
    else if (index >= 0 && rows.length > 0) mainOf(rows[Math.min(index, rows.length - 1)]).focus({ preventScroll: true });
    else document.getElementById("main")?.focus({ preventScroll: true });
  });
  return { onFocusIn: note, onFocusOut: forget };
}

// Return what has the focus while a row is the current one: the link to what it is about.
export function mainOf(row) {
  const found = row.querySelector("[data-title=Node] a") ?? row.querySelector("td a") ?? row.querySelector("td button");
  if (found) return found;
  row.tabIndex = -1;
  return row;
}

// Make the row that is clicked the current one.
function clickRow({ target }) {
  if (getSelection().isCollapsed && !target.closest("a, button, input, summary")) mainOf(target.closest("tr")).focus({ preventScroll: true });
}

// Render rows.
// order: who sorts, "local", "api" by the columns that have a sortKey, or "none"; isShown(row): the filter; keyOf(row): its identity;
// nameOf(row): by which it is chosen; sort: the order without one in the address; classOf(row): of a line; look: a class;
// total: of all pages; isOld: other rows are on their way; isComing: so are those of the pages after the first.
export function Table({ caption, columns, rows, order = "local", isShown, keyOf = ({ id, uuid }) => id ?? uuid, nameOf, classOf, sort = "", empty, look, total, isOld, isComing }) {
  const { query } = useLocation();
  const table = useRef(null);
  const focus = useFocus(table);
  const picked = useChosen();
  const by = order === "none" ? "" : query.sort ?? sort;
  const isLocal = order === "local";
  const sorted = useMemo(() => (isLocal ? sortRows(rows, columns, by) : rows), [rows, columns, by, isLocal]);
  const shown = useMemo(() => (isShown ? sorted.filter(isShown) : sorted), [sorted, isShown]);
  const pages = Math.max(1, Math.ceil(shown.length / LINES));
  const page = Math.min(Math.max(1, Number.parseInt(query.page, 10) || 1), pages);
  const seen = shown.slice((page - 1) * LINES, page * LINES);
  const count = total ?? shown.length;
  const asked = JSON.stringify(query);
  const said = useRef(asked);
  useEffect(() => { // not of what a poll brings
    if (isOld) return;
    if (said.current !== asked) announce(`${caption}: ${plural(count, "line")}`);
    said.current = asked;
  }, [asked, count, isOld]);
  if (seen.length === 0) return html`<p class="quiet empty">${empty}</p>`;
  const named = nameOf && seen.map((row) => [nameOf(row), row]);
  return html`<div class=${look} aria-busy=${isOld}><table ref=${table} onClick=${clickRow} ...${focus}>
      <caption class="hidden-text">${caption}: ${plural(count, "line")}</caption>
      <thead><tr>${named && html`<th class="choose">${box("Choose all that are shown", named, named.every(([name]) => picked.has(name)))}</th>`}${columns.map((each) => heading(each, by, order))}</tr></thead>
      <tbody>${seen.map((row) => html`<${Row} key=${keyOf(row)} row=${row} nameOf=${nameOf} isChosen=${nameOf && picked.has(nameOf(row))}
        columns=${columns} classOf=${classOf} />`)}</tbody>
    </table></div>
    ${isComing ? pager(page, Math.ceil(total / LINES), total) : pager(page, pages, shown.length)}`;
}
