// Tables: sorted by the address, 100 lines at a time, cards on narrow screens.
//
// A column is {id, title, value(row), cell(row), isNumeric, isFixed}: value is sorted by, unless it
// is fixed, and cell is shown (default: the value). Rows whose object is the same are not rendered again.
import { number, plural } from "./format.js";
import { Component, html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";

export const LINES = 100;

const collator = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(a ?? "", b ?? "");
}

// Return the rows in the order of a column: "cpu", or "-cpu" for descending.
export function sortRows(rows, columns, sort) {
  const column = columns.find(({ id }) => id === sort.replace("-", ""));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows
    .map((row) => [column.value(row), row])
    .sort(([a], [b]) => sign * compare(a, b))
    .map(([, row]) => row);
}

class Row extends Component {
  shouldComponentUpdate({ row, columns }) {
    return row !== this.props.row || columns !== this.props.columns;
  }

  render({ row, columns, classOf }) {
    return html`<tr class=${classOf?.(row)}>
      ${columns.map(
        ({ title, value, cell, isNumeric }) => html`<td data-title=${title}
          class=${isNumeric ? "number" : ""}>${(cell ?? value)(row)}</td>`,
      )}
    </tr>`;
  }
}

function Heading({ column, sort }) {
  const { id, title, isNumeric, isFixed } = column;
  const className = isNumeric ? "number" : "";
  if (isFixed) return html`<th scope="col" class=${className}>${title}</th>`;
  const order = sort === id ? "ascending" : sort === `-${id}` ? "descending" : "none";
  const sign = { ascending: "▲", descending: "▼", none: "" }[order];
  // Amounts are sorted from the largest first.
  const next = order === "none" ? (isNumeric ? `-${id}` : id) : order === "ascending" ? `-${id}` : id;
  return html`<th scope="col" class=${className} aria-sort=${order}>
    <button type="button" class="sort" onClick=${() => setQuery({ sort: next, page: "" })}>
      ${title}<span aria-hidden="true" class="sign">${sign}</span>
    </button>
  </th>`;
}

function Pager({ page, count }) {
  const pages = Math.ceil(count / LINES);
  if (pages < 2) return null;
  const go = (wanted) => () => setQuery({ page: wanted > 1 ? String(wanted) : "" });
  const last = Math.min(count, page * LINES);
  return html`<nav class="pager" aria-label="Pages of the table">
    <button type="button" disabled=${page === 1} onClick=${go(page - 1)}>Previous</button>
    <span>${number((page - 1) * LINES + 1)}–${number(last)} of ${number(count)}</span>
    <button type="button" disabled=${page === pages} onClick=${go(page + 1)}>Next</button>
  </nav>`;
}

// Render a table.
// isShown(row): the filter, changed only when it filters otherwise; keyOf(row): its identity;
// sort: the order without one in the address; classOf(row): the class of a line.
export function Table({ caption, columns, rows, isShown, keyOf, classOf, sort = "", empty }) {
  const { query } = useLocation();
  const order = query.sort ?? sort;
  const sorted = useMemo(() => sortRows(rows, columns, order), [rows, columns, order]);
  const shown = useMemo(() => (isShown ? sorted.filter(isShown) : sorted), [sorted, isShown]);
  const pages = Math.max(1, Math.ceil(shown.length / LINES));
  const page = Math.min(Math.max(1, Number.parseInt(query.page, 10) || 1), pages);
  const lines = shown.slice((page - 1) * LINES, page * LINES);
  return html`<table>
      <caption class="hidden-text">${caption}: ${plural(shown.length, "line")}</caption>
      <thead><tr>
        ${columns.map((column) => html`<${Heading} column=${column} sort=${order} />`)}
      </tr></thead>
      <tbody>
        ${lines.map(
          (row) => html`<${Row} key=${keyOf(row)} row=${row} columns=${columns} classOf=${classOf} />`,
        )}
      </tbody>
    </table>
    ${lines.length === 0 && html`<p class="quiet empty">${empty}</p>`}
    <${Pager} page=${page} count=${shown.length} />`;
}
