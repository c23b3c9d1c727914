// Tables: sorted by the address, 100 lines at a time, cards on narrow screens.
//
// A column is {id, title, value, cell, isNumeric}: value(row) is sorted by (default: the row's value of
// that id) and cell(value, row) shown (default: its text). Equal rows are not rendered again.
import { number, plural } from "./format.js";
import { Component, html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { Ago, Name, NodeLink } from "./widgets.js";

const LINES = 100;
const ORDERS = { ascending: "▲", descending: "▼" };

const collator = new Intl.Collator("en", { numeric: true });

// Return a cell of a time of the API.
export const ago = (at) => html`<${Ago} at=${at} />`;

// Return a cell of a text.
export const text = (value) => html`<${Name} text=${value} />`;

// The column of the nodes of rows with host and nodename, or with host alone.
export const NODE = {
  id: "node", title: "Node", value: ({ nodename }) => nodename,
  cell: (nodename, row) => (nodename ? html`<${NodeLink} uuid=${row.node_uuid} host=${row.host} nodename=${nodename} />` : "whole host"),
};

const valueOf = ({ id, value }, row) => (value ? value(row) : row[id]);

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(a ?? "", b ?? "");
}

// Return the rows in the order of a column: "cpu", or "-cpu" for descending.
function sortRows(rows, columns, sort) {
  const column = columns.find(({ id }) => id === sort.replace("-", ""));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows
    .map((row) => [valueOf(column, row), row])
    .sort(([a], [b]) => sign * compare(a, b))
    .map(([, row]) => row);
}

class Row extends Component {
  shouldComponentUpdate({ row, columns }) {
    return row !== this.props.row || columns !== this.props.columns;
  }

  render({ row, columns, classOf }) {
    return html`<tr class=${classOf?.(row)}>${columns.map((column) => html`<td data-title=${column.title}
      class=${column.isNumeric && "number"}>${(column.cell ?? text)(valueOf(column, row), row)}</td>`)}</tr>`;
  }
}

function Heading({ column: { id, title, isNumeric }, sort }) {
  const order = { [id]: "ascending", [`-${id}`]: "descending" }[sort];
  // Amounts are sorted from the largest first.
  const next = order === "ascending" || (isNumeric && !order) ? `-${id}` : id;
  return html`<th scope="col" class=${isNumeric && "number"} aria-sort=${order ?? "none"}>
    <button type="button" class="sort" onClick=${() => setQuery({ sort: next })}>
      ${title}<span aria-hidden="true" class="sign">${ORDERS[order]}</span>
    </button>
  </th>`;
}

function Pager({ page, pages, count }) {
  if (pages < 2) return null;
  const step = (title, wanted) => html`<button type="button" disabled=${wanted < 1 || wanted > pages}
    onClick=${() => setQuery({ page: wanted > 1 && wanted })}>${title}</button>`;
  return html`<nav class="pager" aria-label="Pages of the table">
    ${step("Previous", page - 1)}
    <span>${number((page - 1) * LINES + 1)}–${number(Math.min(count, page * LINES))} of ${number(count)}</span>
    ${step("Next", page + 1)}
  </nav>`;
}

// Render a table.
// isFixed: it cannot be sorted; isShown(row): the filter, changed only when it filters otherwise;
// keyOf(row): its identity; sort: the order without one in the address; classOf(row): of a line.
export function Table({ caption, columns, rows, isFixed, isShown, keyOf = ({ uuid, id }) => uuid ?? id, classOf, sort = "", empty }) {
  const { query } = useLocation();
  const order = isFixed ? "" : query.sort ?? sort;
  const sorted = useMemo(() => sortRows(rows, columns, order), [rows, columns, order]);
  const shown = useMemo(() => (isShown ? sorted.filter(isShown) : sorted), [sorted, isShown]);
  const pages = Math.max(1, Math.ceil(shown.length / LINES));
  const page = Math.min(Math.max(1, Number.parseInt(query.page, 10) || 1), pages);
  return html`<table>
      <caption class="hidden-text">${caption}: ${plural(shown.length, "line")}</caption>
      <thead><tr>${columns.map((column) => (isFixed
        ? html`<th scope="col" class=${column.isNumeric && "number"}>${column.title}</th>`
        : html`<${Heading} column=${column} sort=${order} />`))}</tr></thead>
      <tbody>${shown.slice((page - 1) * LINES, page * LINES).map((row) => html`<${Row} key=${keyOf(row)} row=${row}
        columns=${columns} classOf=${classOf} />`)}</tbody>
    </table>
    ${shown.length === 0 && html`<p class="quiet empty">${empty}</p>`}
    <${Pager} page=${page} pages=${pages} count=${shown.length} />`;
}
