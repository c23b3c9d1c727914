// The views that are one list of the API.
import { nextOf, usePoll } from "./api.js";
import { DiffList } from "./diff.js";
import { number } from "./format.js";
import { html } from "./preact.js";
import { hrefOf, useLocation } from "./router.js";
import { ago, NODE, Table } from "./table.js";
import { Answer, Choice, Mark, Name, NodeLink, State } from "./widgets.js";

const LIMIT = 1000;
const MOVING = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

const HOST = { id: "host", title: "Host" };

const SERVICES = [
  { id: "state", title: "State", value: ({ state, status }) => state + status, cell: (value, row) => html`<${State} of=${row} />` },
  { id: "binary", title: "Binary" },
  HOST,
  { id: "last_seen_up", title: "Heartbeat", cell: ago },
  { id: "skew", title: "Clock skew", isNumeric: true, value: ({ clock_skew_seconds: skew }) => skew && Math.abs(skew),
    cell: (_, { clock_skew_seconds: skew }) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`) },
  { id: "version", title: "Version" },
  { id: "disabled_reason", title: "Why disabled" },
];

const WARNINGS = [
  { id: "kind", title: "Kind", cell: (kind) => kind.replaceAll("_", " ") },
  HOST,
  NODE,
  { id: "message", title: "Message" },
  { id: "first_seen", title: "Since", cell: ago },
  { id: "last_seen", title: "Last seen", cell: (at, { resolved_at: end }) => html`${end && "resolved "}${ago(end ?? at)}` },
  { id: "count", title: "Times", isNumeric: true, cell: number },
];

const placeColumn = (id, title) => ({
  id, title, value: (row) => `${row[`${id}_host`]}\u0000${row[`${id}_node`]}`,
  cell: (_, { [`${id}_host`]: host, [`${id}_node`]: nodename }) =>
    html`<${Name} text=${host} /> / <${NodeLink} host=${host} nodename=${nodename} />`,
});

const MOVES = [
  { id: "status", title: "Status", cell: (status) => html`<${Mark} word=${status} />` },
  { id: "migration_type", title: "Type" },
  { id: "workload_uuid", title: "Workload" },
  placeColumn("source", "From"),
  placeColumn("dest", "To"),
  { id: "created_at", title: "Started", cell: ago },
];

const CHANGES = [
  { id: "at", title: "When", cell: ago },
  HOST,
  NODE,
  { id: "what", title: "What" },
  { id: "diff", title: "Differences", cell: (diff) => html`<${DiffList} diff=${diff} />` },
];

// Render a list: its first page, and the following ones on demand. noun: the key of its items;
// next: the title of the link to what follows; the rest is for the table.
function List({ path, noun, next = "More", ...table }) {
  const { path: view, query: { marker, ...query } } = useLocation();
  const poll = usePoll(`${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams({ limit: LIMIT, ...(marker && { marker }) })}`);
  return html`<${Answer} poll=${poll}>${(data) => {
    const following = new URLSearchParams(nextOf(data)?.split("?")[1]).get("marker");
    return html`<${Table} caption=${noun} rows=${data[noun]} ...${table} />
      <p>${marker && html`<a href=${hrefOf(view, query)}>First</a>`}
      ${" "}${following && html`<a href=${hrefOf(view, { ...query, marker: following, page: "" })}>${next}</a>`}</p>`;
  }}<//>`;
}

// Render a list with a choice between what is current, and all.
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
