// The views that are one list of the API.
import { nextOf, usePoll } from "./api.js";
import { diffList } from "./diff.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { column, HOST, NODE, numeric, Table } from "./table.js";
import { ago, answer, bdi, Choice, link, mark, NodeLink, states } from "./widgets.js";

const LIMIT = 1000;
const MOVING = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

const SERVICES = [
  column("state", "State", (_, row) => states(row), ({ state, status }) => state + status),
  column("binary", "Binary"),
  HOST,
  column("last_seen_up", "Heartbeat", ago),
  numeric("skew", "Clock skew", (_, { clock_skew_seconds: skew }) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`),
    ({ clock_skew_seconds: skew }) => Math.abs(skew ?? 0)),
  column("version", "Version"),
  column("disabled_reason", "Why disabled"),
];

const WARNINGS = [
  column("kind", "Kind", (kind) => kind.replaceAll("_", " ")),
  HOST,
  NODE,
  column("message", "Message"),
  column("first_seen", "Since", ago),
  column("last_seen", "Last seen", (at, { resolved_at: end }) => html`${end && "resolved "}${ago(end ?? at)}`),
  numeric("count", "Times"),
];

const place = (id, title) => column(
  id, title, ([host, nodename]) => html`${bdi(host)} / <${NodeLink} host=${host} nodename=${nodename} />`,
  (row) => [row[`${id}_host`], row[`${id}_node`]],
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
  column("at", "When", ago), HOST, NODE, column("what", "What"), column("diff", "Differences", diffList),
];

// Render a list: its first page, and the following ones on demand.
function List({ path, noun, next = "More", ...table }) {
  const { path: view, query: { marker, ...query } } = useLocation();
  const poll = usePoll(`${path}${path.includes("?") ? "&" : "?"}limit=${LIMIT}${marker ? `&marker=${encodeURIComponent(marker)}` : ""}`);
  return answer(poll, (data) => {
    const following = new URLSearchParams(nextOf(data)?.split("?")[1]).get("marker");
    return html`<${Table} caption=${noun} rows=${data[noun]} ...${table} />
      <p>${marker && link(view, "First", query)} ${following && link(view, next, { ...query, marker: following, page: "" })}</p>`;
  });
}

function CurrentList({ current, ended, path, currentPath, ...list }) {
  const isAll = useLocation().query.all === "true";
  return html`<div class="filters"><${Choice} name="all" title="Show" all=${current} values=${[["true", ended]]} /></div>
    <${List} path=${isAll ? path : currentPath} ...${list} />`;
}

export const Services = () =>
  html`<${List} path="/v1/services" noun="services" columns=${SERVICES} sort="host" empty="No service." />`;

export const Warnings = () => html`<${CurrentList} current="unresolved" ended="resolved, too" currentPath="/v1/warnings"
  path="/v1/warnings?all=true" noun="warnings" columns=${WARNINGS} empty="No warning." />`;

export const Moves = () => html`<${CurrentList} current="open" ended="ended, too" path="/v1/migrations"
  currentPath=${`/v1/migrations?${MOVING.map((status) => `status=${status}`).join("&")}`} noun="migrations" columns=${MOVES}
  empty="No workload is moved." />`;

export const Changes = () =>
  html`<${List} path="/v1/history" noun="history" columns=${CHANGES} isFixed next="Older" empty="No change." />`;
