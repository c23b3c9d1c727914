// The views that are one list of the API.
import { ago, answer, bdi, button, choose, column, field, HOST, hostLink, html, isWaiting, LINES, link, list, mark, markerOf, navigate, NODE, nodeLink, number, numeric, plural, QueryForm, quiet, section, select, sentence, setQuery, Table, time, useAsk, useChosen, useList, useLocation, useMay, usePoll, useRef, useState } from "./page.js";
import { lastNight } from "./verbs.js";
import { AMOUNTS, EVERYWHERE, isUuid, keyOf, NAME, ProjectSum, Workload } from "./workloads.js";

export const MOVING = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

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
  id, title, ([host, nodename]) => html`<span>${hostLink(host)} / ${nodeLink({ host, nodename })}</span>`, (row) => [row[`${id}_host`], row[`${id}_node`]],
);

const MOVES = [
  column("status", "Status", (status) => mark(status)),
  column("migration_type", "Type"),
  column("workload_name", "Workload", (name, { workload_uuid: uuid }) => link("/workloads", bdi(name || uuid), { text: uuid })),
  place("source", "From"),
  place("dest", "To"),
  column("created_at", "Started", ago),
];

const EVENTS = [
  column("at", "When", ago), column("kind", "Kind"), HOST, NODE, column("changes", "What", (texts) => list(texts, "plain")),
];
const KINDS = [["", "all"], "node", "claim", "move", "service", "warning"];

const WHOLE = 1000; // rows of a list that are asked for at once, and sorted here

// Return what a poll last answered, until it answers for another address.
function useLast({ data, error }) {
  const last = useRef(null);
  if (data) last.current = data;
  return { data: data ?? last.current, error, isOld: data === null };
}

const COUNTED = ["hosts", "nodes", "workloads", "services"]; // by the API, which then sorts them, too

// Render a list with filters {name: value or values}: all of it if it is short, else page by page as the API sorts and finds.
export function List({ noun, filters, next = "Next", order, title = noun[0].toUpperCase() + noun.slice(1), sort = "", below, ...table }) {
  const { path, query: { marker, from = 0, sort: given, ...query } } = useLocation();
  const isCounted = COUNTED.includes(noun);
  const [limit, setLimit] = useState(isCounted ? LINES : undefined);
  const by = table.columns.find(({ id, sortKey }) => sortKey && id === (given ?? sort).replace("-", ""));
  const more = isCounted && { limit, with_count: true, ...(by && { sort_key: by.sortKey, sort_dir: (given ?? sort).startsWith("-") ? "desc" : "asc" }) };
  const found = useLast(useList(noun, { ...filters, marker, ...more }));
  if (isWaiting([usePoll("/v1/about", 0)])) return quiet("Loading…"); // columns follow what the user may do
  return answer(found, (data) => {
    const { [noun]: rows, count = rows.length } = data;
    const following = markerOf(data);
    const isPart = Boolean(marker || following);
    const isComing = isCounted && isPart && !marker && count <= WHOLE && (limit < WHOLE || found.isOld);
    if (isComing) setLimit(WHOLE);
    const step = (text, to) => button(text, () => to && navigate(path, { ...query, sort: given, page: "", ...to }), { "aria-disabled": !to });
    const end = Number(from) + rows.length;
    return html`<${Table} caption=${title} rows=${rows} order=${order ?? (isPart ? "api" : "local")} total=${isCounted ? count : undefined} sort=${sort} isOld=${found.isOld} isComing=${isComing} ...${table} />
      ${isPart && !isComing && html`<nav class="pager" aria-label="Pages of the list">${step("First", marker && {})}
        ${isCounted && html`<span>${number(Number(from) + 1)}–${number(end)} of ${number(count)}</span>`}
        ${step(next, following && { marker: following, from: isCounted && end })}</nav>`}${below}`;
  });
}

const kindOf = ({ kind = "" }, title, kinds) => select(title, kind, kinds, (value) => setQuery({ kind: value, marker: "" }));

const filters = (...fields) => html`<${QueryForm} submit="Show">${fields}<//>`;

const ENDS = [
  { title: "Confirm", effect: "The move ends at its destination: the claim of the source is released." },
  { title: "Revert", effect: "The move ends at its source: the claim of the destination is released.", is_dangerous: true },
];

// The moves that go on, with what may end them; on a host's page, with a title, nothing if there are none.
export function OpenMoves({ host, title }) {
  const [dialog, open] = useAsk();
  const may = [useMay("migrations:confirm"), useMay("migrations:revert")];
  const { migrations = [] } = useList("migrations", { host, status: MOVING }).data ?? {};
  if (title && migrations.length === 0) return dialog;
  const ends = ENDS.filter((_, index) => may[index]);
  const end = (_, { uuid, workload_uuid: workload, workload_name: name, source_host: from, dest_host: to }) => html`<span class="ends">${ends.map((each) => open(
    { ...each, title: `${each.title} the move of ${name || workload}`, method: "POST", path: `/v1/migrations/${uuid}/${each.title.toLowerCase()}` },
    { "From host": from, "to host": to }, { text: each.title }))}</span>`;
  const moves = html`<${List} noun="migrations" title="Moves" filters=${{ host, status: MOVING }} empty="No workload is moved."
    columns=${ends.length > 0 ? [...MOVES, column("end", "End", end)] : MOVES} />`;
  return html`${dialog}${title ? section(title, moves) : moves}`;
}

function OpenWarnings({ filters: { host } }) {
  const { query: { silenced } } = useLocation();
  const [dialog, open] = useAsk();
  const silence = (_, { id, kind, ...row }) => id && html`<span class="ends">${[4, 24].map((hours) => open(
    { title: `Silence ${hours} h`, method: "POST", path: `/v1/warnings/${id}/silence`, body: { for_seconds: hours * 3600 }, takes_reason: "reason",
      effect: "Until then it does not count." }, { Host: row.host, Warning: kind }))}</span>`;
  return html`${dialog}<p>${link("/warnings", "Silenced", { host, silenced: true })}</p>
    <${List} noun="warnings" filters=${{ host, silenced }} empty="No warning." columns=${[...WARNINGS, ...(silenced ? SILENCED : []),
      ...(useMay("warnings:silence") ? [column("end", "Action", silence)] : [])]} />`;
}

// Return a view of all hosts or one, with a link to what happened before.
const viewOf = (kind, View, props) => () => {
  const { query } = useLocation();
  const { host } = query;
  return html`${filters(field(query, "host", "Host"))}
    <p>${link("/events", "What happened", { kind, host })}</p>
    <${View} host=${host} filters=${{ host }} ...${props} />`;
};

export const Warnings = viewOf("warning", OpenWarnings);
export const Moves = viewOf("move", OpenMoves);

const MOMENT = { type: "datetime-local" };
const iso = (text) => text && new Date(text).toISOString();

export function Events() {
  const { query } = useLocation();
  const { host, nodename, kind, since, until } = query;
  return html`<p>${link("/events", "Last night", { ...query, marker: "", ...lastNight() })}</p>
    ${filters(
      kindOf(query, "Kind", KINDS),
      field(query, "host", "Host"), field(query, "nodename", "Node"), field(query, "since", "From", MOMENT), field(query, "until", "To", MOMENT),
    )}
    <${List} noun="history" filters=${{ host, nodename, kind, since: iso(since), until: iso(until) }} columns=${EVENTS} order="none" title="Events" next="Older" empty="Nothing happened." />`;
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

// The button that adopts the guests that are chosen.
function Adopt() {
  const [dialog, open] = useAsk();
  const each = [...useChosen()].map(([key, { uuid, name }]) => ({ key, name: name || uuid, path: `/v1/workloads/${uuid}/adopt` }));
  const adoption = { title: "Adopt", method: "POST", effect: "A claim of what each uses is made and confirmed." };
  return html`${dialog}<p class="actions">${plural(each.length, "guest")} chosen
    ${each.length > 0 && open(adoption, {}, { each, onDone: () => choose([]) })}</p>`;
}

// Workloads, guests without a claim, and claims; a workload by its uuid.
export function Owned() {
  const { query } = useLocation();
  const mayAdopt = useMay("workloads:adopt");
  const { kind, host, project } = query;
  const text = (query.text ?? query.name)?.trim(); // links of earlier releases have a name
  const [noun, only, columns, title] = OWNED[kind] ?? OWNED[""];
  const isOfWorkloads = noun === "workloads";
  const canAdopt = kind === "unclaimed" && mayAdopt;
  return html`${filters(kindOf(query, "Show", Object.entries(OWNED).map(([each, owned]) => [each, owned.at(-1)])),
    isOfWorkloads && field({ text }, "text", "Workload", { type: "search", class: "grow", placeholder: "part of a name, UUID or project" }),
    field(query, "host", "Host"), field(query, "project", "Project"))}
    ${isOfWorkloads && isUuid(text) ? html`<${Workload} key=${text} uuid=${text} />` : html`
      ${(project || (isOfWorkloads && text)) && html`<${ProjectSum} project=${project ?? text} isChosen=${Boolean(project)} />`}
      ${canAdopt && html`<${Adopt} />`}
      <${List} key=${title} noun=${noun} title=${title} filters=${{ ...only, host, project, ...(isOfWorkloads && { name_part: text }) }}
        keyOf=${isOfWorkloads ? keyOf : undefined} nameOf=${canAdopt && keyOf} empty=${text ? "No workload has such a name." : "Nothing is like that."} columns=${columns} />`}`;
}
