// Tables: sorted by the address, 100 lines at a time, cards on narrow screens.
//
// In a column, value(row) is sorted by and cell(value, row) shown. Equal rows are not rendered again.
import { Component, html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { bdi, button, nodeLink, number, plural } from "./widgets.js";

const LINES = 100;
const ORDERS = { ascending: "▲", descending: "▼" };

const collator = new Intl.Collator("en", { numeric: true });

export const column = (id, title, cell = bdi, value = (row) => row[id]) => ({ id, title, cell, value });
export const numeric = (id, title, cell = number, value = undefined) => ({ ...column(id, title, cell, value), isNumeric: true });

export const HOST = column("host", "Host");

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

class Row extends Component {
  shouldComponentUpdate({ row, columns }) {
    return row !== this.props.row || columns !== this.props.columns;
  }

  render({ row, columns, classOf }) {
    return html`<tr class=${classOf?.(row)}>${columns.map(({ title, isNumeric, cell, value }) => html`<td data-title=${title}
      class=${isNumeric && "number"}>${cell(value(row), row)}</td>`)}</tr>`;
  }
}

function heading({ id, title, isNumeric }, sort, isFixed) {
  const order = { [id]: "ascending", [`-${id}`]: "descending" }[sort];
  // Amounts are sorted from the largest first.
  const next = order === "ascending" || (isNumeric && !order) ? `-${id}` : id;
  const text = html`${title}<span aria-hidden="true" class="sign">${ORDERS[order]}</span>`;
  return html`<th scope="col" class=${isNumeric && "number"} aria-sort=${isFixed ? undefined : order ?? "none"}>
    ${isFixed ? title : button(text, () => setQuery({ sort: next }), { class: "sort" })}</th>`;
}

function pager(page, pages, count) {
  const step = (text, to) => button(text, () => setQuery({ page: to > 1 && to }), { disabled: to < 1 || to > pages });
  return pages > 1 && html`<nav class="pager" aria-label="Pages of the table">${step("Previous", page - 1)}
    <span>${number((page - 1) * LINES + 1)}–${number(Math.min(count, page * LINES))} of ${number(count)}</span>
    ${step("Next", page + 1)}</nav>`;
}

export const fixed = (caption, columns, rows, more) => html`<${Table} isFixed caption=${caption} columns=${columns} rows=${rows} ...${more} />`;

// Render rows.
// isFixed: it cannot be sorted; isShown(row): the filter; keyOf(row): its identity;
// sort: the order without one in the address; classOf(row): of a line; look: a class.
export function Table({ caption, columns, rows, isFixed, isShown, keyOf = ({ id, uuid }) => id ?? uuid, classOf, sort = "", empty, look }) {
  const { query } = useLocation();
  const order = isFixed ? "" : query.sort ?? sort;
  const sorted = useMemo(() => sortRows(rows, columns, order), [rows, columns, order]);
  const shown = useMemo(() => (isShown ? sorted.filter(isShown) : sorted), [sorted, isShown]);
  const pages = Math.max(1, Math.ceil(shown.length / LINES));
  const page = Math.min(Math.max(1, Number.parseInt(query.page, 10) || 1), pages);
  return html`<div class=${look}><table>
      <caption class="hidden-text">${caption}: ${plural(shown.length, "line")}</caption>
      <thead><tr>${columns.map((each) => heading(each, order, isFixed))}</tr></thead>
      <tbody>${shown.slice((page - 1) * LINES, page * LINES).map((row) => html`<${Row} key=${keyOf(row)} row=${row}
        columns=${columns} classOf=${classOf} />`)}</tbody>
    </table></div>
    ${shown.length === 0 && html`<p class="quiet empty">${empty}</p>`}${pager(page, pages, shown.length)}`;
}
