// The views that are one list of the API.
import { markerOf, useList } from "./api.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { column, HOST, NODE, numeric, Table } from "./table.js";
import { ago, answer, bdi, link, list, mark, nodeLink, sentence, states } from "./widgets.js";

const MOVING = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

const SERVICES = [
  column("state", "State", (_, row) => states(row), ({ state, status }) => state + status),
  column("binary", "Binary"),
  HOST,
  column("last_seen_up", "Heartbeat", ago),
  numeric("clock_skew_seconds", "Clock skew", (skew) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`)),
  column("version", "Version"),
  column("disabled_reason", "Why disabled", sentence),
];

export const WARNINGS = [
  column("kind", "Kind", (kind) => mark(kind.replaceAll("_", " "), "warning")),
  HOST,
  NODE,
  column("message", "Message", sentence),
  column("first_seen", "Since", ago),
  column("last_seen", "Last seen", ago),
  numeric("count", "Times"),
  numeric("earlier", "Earlier"),
];

const place = (id, title) => column(
  id, title, ([host, nodename]) => html`<span>${bdi(host)} / ${nodeLink({ host, nodename })}</span>`, (row) => [row[`${id}_host`], row[`${id}_node`]],
);

const MOVES = [
  column("status", "Status", (status) => mark(status)),
  column("migration_type", "Type"),
  column("workload_uuid", "Workload"),
  place("source", "From"),
  place("dest", "To"),
  column("created_at", "Started", ago),
];

const CHANGES = [
  column("at", "When", ago), HOST, NODE, column("what", "What"), column("changes", "Differences", (texts) => list(texts, "plain")),
];

// Render a list with filters {name: value or values}: its first page, and the following ones on demand.
export function List({ noun, filters, next = "More", ...table }) {
  const { path, query: { marker, ...query } } = useLocation();
  const wanted = Object.entries({ ...filters, marker }).flatMap(([name, values]) => [values].flat().filter(Boolean).map((value) => [name, value]));
  return answer(useList(noun, wanted), (data) => {
    const following = markerOf(data);
    return html`<${Table} caption=${noun} rows=${data[noun]} ...${table} />
      <p class="pager">${marker && link(path, "First", query)} ${following && link(path, next, { ...query, marker: following, page: "" })}</p>`;
  });
}

const viewOf = (props) => () => html`<${List} ...${props} />`;

export const Services = viewOf({ noun: "services", columns: SERVICES, sort: "host", empty: "No service." });
export const Warnings = viewOf({ noun: "warnings", columns: WARNINGS, empty: "No warning." });
export const Moves = viewOf({ noun: "migrations", filters: { status: MOVING }, columns: MOVES, empty: "No workload is moved." });

export function Changes() {
  const { host, node } = useLocation().query;
  return html`<${List} noun="history" filters=${{ host, node }} columns=${CHANGES} isFixed next="Older" empty="No change." />`;
}
