// The views that are one list of the API.
import { ago, answer, bdi, column, field, HOST, html, link, list, mark, markerOf, NODE, nodeLink, numeric, QueryForm, select, sentence, setQuery, states, Table, time, useAsk, useList, useLocation, useMay } from "./page.js";
import { AMOUNTS, EVERYWHERE, keyOf, NAME } from "./workloads.js";

const MOVING = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

export const STATE = column("state", "State", (_, row) => states(row), ({ state, status }) => state + status);
export const WHY_DISABLED = column("disabled_reason", "Why disabled", sentence);
const SERVICES = [
  STATE,
  column("binary", "Binary"),
  HOST,
  column("last_seen_up", "Heartbeat", ago),
  numeric("clock_skew_seconds", "Clock skew", (skew) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`)),
  column("version", "Version"),
  WHY_DISABLED,
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

const SILENCED = [column("silenced_until", "Until", time), column("silenced_reason", "Why silenced", sentence), column("silenced_by", "By")];

const place = (id, title) => column(
  id, title, ([host, nodename]) => html`<span>${bdi(host)} / ${nodeLink({ host, nodename })}</span>`, (row) => [row[`${id}_host`], row[`${id}_node`]],
);

const MOVES = [
  column("status", "Status", (status) => mark(status)),
  column("migration_type", "Type"),
  column("workload_uuid", "Workload", (uuid) => link("/search", bdi(uuid), { text: uuid })),
  place("source", "From"),
  place("dest", "To"),
  column("created_at", "Started", ago),
];

const EVENTS = [
  column("at", "When", ago), column("kind", "Kind"), HOST, NODE, column("changes", "What", (texts) => list(texts, "plain")),
];
const KINDS = [["", "all"], "node", "claim", "move", "service", "warning"];

// Render a list with filters {name: value or values}: its first page, and the following ones on demand.
export function List({ noun, filters, next = "More", ...table }) {
  const { path, query: { marker, ...query } } = useLocation();
  return answer(useList(noun, { ...filters, marker }), (data) => {
    const following = markerOf(data);
    return html`<${Table} caption=${noun} rows=${data[noun]} ...${table} />
      <p class="pager">${marker && link(path, "First", query)} ${following && link(path, next, { ...query, marker: following, page: "" })}</p>`;
  });
}

const kindOf = ({ kind = "" }, title, kinds) => select(title, kind, kinds, (value) => setQuery({ kind: value, marker: "" }));

const filters = (...fields) => html`<${QueryForm} submit="Show">${fields}<//>`;

const ENDS = [
  { title: "Confirm", effect: "The move ends at its destination: the claim of the source is released." },
  { title: "Revert", effect: "The move ends at its source: the claim of the destination is released.", is_dangerous: true },
];

// The moves that go on, with what may end them.
export function OpenMoves({ host }) {
  const [dialog, open] = useAsk();
  const may = [useMay("migrations:confirm"), useMay("migrations:revert")];
  const ends = ENDS.filter((_, index) => may[index]);
  const end = (_, { uuid, workload_uuid: workload, source_host: from, dest_host: to }) => html`<span class="ends">${ends.map((each) => open(
    { ...each, title: `${each.title} the move of ${workload}`, method: "POST", path: `/v1/migrations/${uuid}/${each.title.toLowerCase()}` },
    { "From host": from, "to host": to }, { text: each.title }))}</span>`;
  return html`${dialog}<${List} noun="migrations" filters=${{ host, status: MOVING }} empty="No workload is moved."
    columns=${ends.length > 0 ? [...MOVES, column("end", "End", end)] : MOVES} />`;
}

function OpenWarnings({ filters: { host } }) {
  const { query: { silenced } } = useLocation();
  const [dialog, open] = useAsk();
  const quiet = (_, { id, kind, ...row }) => id && html`<span class="ends">${[4, 24].map((hours) => open(
    { title: `Silence ${hours} h`, method: "POST", path: `/v1/warnings/${id}/silence`, body: { for_seconds: hours * 3600 }, takes_reason: "reason",
      effect: "Until then it does not count." }, { Host: row.host, Warning: kind }))}</span>`;
  return html`${dialog}<p>${link("/warnings", "Silenced", { host, silenced: true })}</p>
    <${List} noun="warnings" filters=${{ host, silenced }} empty="No warning." columns=${[...WARNINGS, ...(silenced ? SILENCED : []),
      ...(useMay("warnings:silence") ? [column("end", "Action", quiet)] : [])]} />`;
}

// Return a view of all hosts or one, with a link to what happened before.
const viewOf = (kind, View, props) => () => {
  const { query } = useLocation();
  const { host } = query;
  return html`${filters(field(query, "host", "Host"))}
    <p>${link("/events", "What happened", { kind, host })}</p>
    <${View} host=${host} filters=${{ host }} ...${props} />`;
};

export const Services = viewOf("service", List, { noun: "services", columns: SERVICES, sort: "host", empty: "No service." });
export const Warnings = viewOf("warning", OpenWarnings);
export const Moves = viewOf("move", OpenMoves);

const MOMENT = { type: "datetime-local" };
const local = (date) => date.toLocaleString("sv", { dateStyle: "short", timeStyle: "short" }).replace(" ", "T");
const iso = (text) => text && new Date(text).toISOString();

// Return last night, 18:00 to 8:00, as fields have it.
function lastNight() {
  const end = new Date();
  end.setHours(8, 0, 0, 0);
  const since = new Date(end);
  since.setHours(18 - 24);
  return { since: local(since), until: local(end) };
}

export function Events() {
  const { query } = useLocation();
  const { host, nodename, kind, since, until } = query;
  return html`<p>${link("/events", "Last night", { ...query, marker: "", ...lastNight() })}</p>
    ${filters(
      kindOf(query, "Kind", KINDS),
      field(query, "host", "Host"), field(query, "nodename", "Node"), field(query, "since", "From", MOMENT), field(query, "until", "To", MOMENT),
    )}
    <${List} noun="history" filters=${{ host, nodename, kind, since: iso(since), until: iso(until) }} columns=${EVENTS} isFixed next="Older" empty="Nothing happened." />`;
}

const OWNED = { // in the address -> noun of the API, filters, columns, title
  "": ["workloads", {}, [HOST, ...EVERYWHERE], "Workloads"],
  unclaimed: ["workloads", { claimed: "false" }, [HOST, ...EVERYWHERE], "Guests without a claim"],
  claims: ["claims", { state: ["held", "confirmed"] }, [
    column("state", "State"), column("created_at", "Since", ago), column("workload", "Workload", (_, claim) => NAME.cell(null,
      { uuid: claim.workload_uuid, name: claim.workload_name }), ({ workload_name }) => workload_name),
    HOST, NODE, column("project_id", "Project"), ...AMOUNTS,
  ], "Claims"],
};

const adoptionOf = ({ uuid, name }) => ({
  title: `Adopt ${name || uuid}`, method: "POST", path: `/v1/workloads/${uuid}/adopt`,
  effect: "A claim of what it uses is made and confirmed.",
});

// Workloads, guests without a claim, and claims.
export function Owned() {
  const { query } = useLocation();
  const [dialog, open] = useAsk();
  const mayAdopt = useMay("workloads:adopt");
  const [noun, only, columns, title] = OWNED[query.kind] ?? OWNED[""];
  const adopt = column("adopt", "Action", (_, row) => row.claim_uuid === null
    && open(adoptionOf(row), { Host: row.host, Node: row.nodename }, { text: "Adopt" }), () => "");
  const { host, project, name } = query;
  const chosen = { ...only, host, project, ...(noun === "workloads" && { name_part: name }) };
  return html`${filters(kindOf(query, "Show", Object.entries(OWNED).map(([kind, owned]) => [kind, owned.at(-1)])),
    field(query, "host", "Host"), field(query, "project", "Project"), noun === "workloads" && field(query, "name", "Name"))}
    <${List} key=${title} noun=${noun} filters=${chosen} keyOf=${noun === "workloads" ? keyOf : undefined} empty="Nothing is like that."
      columns=${noun === "workloads" && mayAdopt ? [...columns, adopt] : columns} />
    ${dialog}`;
}
