// The overview: health in words, totals, and the table of nodes with its filters.
import { List } from "./lists.js";
import { allocatedOf, amountOf, answer, aside, bar, button, column, compare, cpuOf, fillOf, fixed, folded, HOST, hostOf, html, LINES, link, list, mark, nodeLink, number, numeric, plural, quiet, section, select, sentence, setQuery, states, Table, time, useChoice, useEffect, useList, useLocation, useMay, useMemo, usePoll, useSame, useState } from "./page.js";
import { Tiles } from "./tiles.js";
import { DayLine, TrendTotals } from "./trends.js";

const CHOICES = { // by which nodes are filtered: as select has them
  state: ["up", "down", "unreachable"],
  status: ["enabled", "disabled"],
  freshness: ["fresh", "late", "stale", "never"],
  only: [["empty", "without nodes"], "overcommitted", ["unread", "not read recently"], ["maintenance", "in maintenance"], ["warnings", "with warnings"]],
};
const ONLY = {
  empty: ({ nodename }) => !nodename,
  overcommitted: ({ amounts }) => Object.values(amounts).some((use) => fillOf(use) > 1),
  maintenance: (node) => node.maintenance,
  unread: ({ state, freshness }) => state === "up" && (freshness === "late" || freshness === "stale"),
  warnings: ({ warnings }) => warnings > 0,
};

const BARS = { cpu: ["CPU", cpuOf], memory: ["Memory", () => "MEMORY_MB"], disk: ["Disk", () => "DISK_GB"] };

// A column of bars; of one resource, the last day is beside them.
const barColumn = (id, [title, resourceOf], hasDay) => numeric(id, title, (fill, { uuid, amounts }) => {
  const resource = resourceOf(amounts);
  const use = amounts[resource];
  const text = amountOf(resource, allocatedOf(use), use.limit) + (resource === "PCPU" ? " pinned" : "");
  return html`${bar(use)}<span class="amount">${hasDay && uuid && resource !== "PCPU" && html`<${DayLine} uuid=${uuid} resource=${resource} />`}${fill > 1 ? mark(text, "over") : text}</span>`;
}, ({ amounts }) => fillOf(amounts[resourceOf(amounts)]));

// Columns of nodes of the overview and of /v1/nodes.
export const NODES = [
  column("state", "State", (_, node) => states(node, true), ({ severity }) => -severity),
  { ...HOST, sortKey: "host" },
  { ...column("node", "Node", (nodename, { uuid, host }) => (nodename ? nodeLink({ node_uuid: uuid, nodename }) : link("/host", "no node yet", { host })), (node) => node.nodename ?? node.hypervisor_hostname), sortKey: "nodename" },
  ...Object.entries(BARS).map(([id, more]) => barColumn(id, more, id === "memory")),
  { ...numeric("instances", "Instances", number, ({ guests, running_vms: count }) => guests?.instance ?? count), sortKey: "running_vms" },
  { ...numeric("containers", "Containers", number, ({ guests, total_containers: count }) => guests?.container ?? count), sortKey: "total_containers" },
];
const WITH_WARNINGS = [...NODES, numeric("warnings", "Warnings")];
const FIXED = ["state", "node"]; // columns that cannot be hidden
const NONE = "No node is like that.";
const FIRST_CAUSES = 4; // of which there is room above the nodes
const LATE_MS = 400;
const NARROW = 1100; // px of a window in which not all columns are shown until they are chosen

// Return the columns of nodes that are chosen, with the last day of the amount by which nodes are sorted, or of memory; and their boxes.
function useColumns(columns) {
  const { sort = "" } = useLocation().query;
  const [names, choose] = useChoice("hidden", innerWidth < NARROW ? "instances containers" : "");
  const hidden = names.split(" ");
  const day = ["cpu", "disk"].find((each) => sort.endsWith(each)) ?? "memory";
  const shown = useMemo(() => columns.filter(({ id }) => !hidden.includes(id)).map((each) => (each.id in BARS ? barColumn(each.id, BARS[each.id], each.id === day) : each)), [columns, names, day]);
  const change = (id, isShown) => choose((isShown ? hidden.filter((each) => each !== id) : [...hidden, id]).join(" "));
  const box = ({ id, title }) => html`<label><input type="checkbox" checked=${!hidden.includes(id)} onChange=${({ target }) => change(id, target.checked)} /> ${title}</label> `;
  return [shown, folded("Columns", columns.filter(({ id }) => !FIXED.includes(id)).map(box))];
}

function filterOf({ text = "", only, ...query }) {
  const wanted = text.trim().toLowerCase();
  const tests = Object.keys(CHOICES).filter((name) => query[name]).map((name) => (node) => node[name] === query[name]);
  if (only in ONLY) tests.push(ONLY[only]);
  if (wanted) tests.push(({ host, nodename, uuid }) => `${host}\n${nodename}\n${uuid}`.toLowerCase().includes(wanted));
  return tests.length > 0 ? (node) => tests.every((test) => test(node)) : undefined;
}

const filters = (query, names, find, choice, choices = CHOICES) => html`<form class="filters compact" role="search" onSubmit=${(event) => event.preventDefault()}>
  <label class="grow">Find <input type="search" placeholder=${find} value=${query.text ?? ""}
    onInput=${({ target }) => setQuery({ text: target.value, marker: "" })} /></label>
  ${names.map((name) => select(name[0].toUpperCase() + name.slice(1), query[name] ?? "", [["", "all"], ...choices[name]],
    (value) => setQuery({ [name]: value, marker: "" })))}
  ${choice}${Object.values(query).some(Boolean) && link("/", "Clear")}
</form>`;

const classOf = ({ state }) => state !== "up" && "off";

function Nodes({ nodes }) {
  const { query } = useLocation();
  const [columns, choice] = useColumns(WITH_WARNINGS);
  const mayChange = useMay("services:update");
  const isShown = useMemo(() => filterOf(query), [query.text, ...Object.keys(CHOICES).map((name) => query[name])]);
  return html`${filters(query, Object.keys(CHOICES), "host, node or UUID", choice)}
    <${Table} look="dense" caption="Nodes" columns=${columns} rows=${nodes} sort="state" isShown=${isShown} classOf=${classOf} keyOf=${({ uuid, host }) => uuid || host} nameOf=${mayChange && hostOf} empty=${NONE} />`;
}

const FULLEST = { ...numeric("fullness", "Fullest", (share) => `${Math.floor(100 * share)} %`), sortKey: "fullness" };
const PAGED = [...NODES.slice(0, 3), FULLEST, ...NODES.slice(3)];
const PAGED_CHOICES = { // what the API selects nodes by
  ...CHOICES, only: CHOICES.only.filter((each) => ["overcommitted", "unread", "maintenance", "warnings"].includes([each].flat()[0])),
};

const UNREAD = { state: "up", freshness: ["late", "stale"] }; // as ONLY has it

// Return the filters of /v1/nodes for a query of the overview.
const filtersOf = ({ text, state, status, freshness, only }) => ({ text, state, status, freshness, ...(only === "unread" ? UNREAD : only && { [only]: true }) });

// The nodes of a fleet that is too large for the overview, page by page, the fullest first.
function PagedNodes({ nodes }) {
  const { query } = useLocation();
  const [columns, choice] = useColumns(PAGED);
  const mayChange = useMay("services:update");
  return html`${filters(query, Object.keys(PAGED_CHOICES), "host, node or UUID", choice, PAGED_CHOICES)}
    ${quiet(`The fleet has more than ${plural(nodes.length, "node")}: the API sorts and finds them, page by page.`)}
    <${List} noun="nodes" filters=${filtersOf(query)} sort="-fullness" look="dense" columns=${columns} classOf=${classOf} nameOf=${mayChange && hostOf} next="Next nodes" empty=${NONE} />`;
}

// The list of nodes may be far below what leads to it.
function showNodes() {
  const heading = document.getElementById("nodes");
  heading.focus();
  heading.scrollIntoView();
}

// A link to a view, or to the list below, if there is one.
const lead = (path, filters, shown) => (path ? html`<span onClick=${path === "/" && showNodes}>${link(path, shown, filters)}</span>` : shown);

const findings = (found, show) => list(found.map(({ level, text, path, filters }) => lead(path, filters, show(text, level))));

const health = ({ level, text, problems, notes }, summary) => html`<section class="health" aria-label="Health">
  ${problems.length > 0 ? findings(problems, mark) : mark(text, level)}
  <div class="quiet">${findings(notes, sentence)}${aside(summary)}</div>
</section>`;

// What operators have set is not a trouble, and has their sign.
export const causeOf = ({ level, text, path, filters, since }) => html`<span title=${since ? `since ${time(since)}` : undefined}>${
  lead(path, filters, mark(sentence(text), level === "good" ? "disabled" : level))}</span>`;

function Attention({ causes }) {
  const [hasAll, setAll] = useState(false);
  const more = causes.length - FIRST_CAUSES;
  return causes.length > 0 && html`<section class="attention" aria-labelledby="attention"><h2 id="attention">Needs attention</h2>
    ${more > 0 && button(hasAll ? "Fewer" : `${more} more`, () => setAll(!hasAll), { "aria-expanded": hasAll })}
    ${list(causes.slice(0, hasAll ? causes.length : FIRST_CAUSES).map(causeOf))}</section>`;
}

const lines = new WeakMap(); // node -> [its line, what is added to the node in it], which rows that did not change keep

function lineOf(node, more) {
  const text = JSON.stringify(more);
  const [line, known] = lines.get(node) ?? [];
  if (known === text) return line;
  const made = { ...node, ...more };
  lines.set(node, [made, text]);
  return made;
}

// Return a line for each host without nodes and each node.
export const linesOf = ({ nodes, empty_hosts: empty, down_since: since, decisions }) => [...empty, ...nodes]
  .map((node) => (node.host in since || node.host in decisions ? lineOf(node, { down_since: since[node.host], ...decisions[node.host] }) : node));

// Return the places of lines in natural order.
const sortPlaces = (lines) => [...lines.keys()].sort((a, b) => compare(lines[a].host, lines[b].host) || compare(lines[a].nodename, lines[b].nodename));

// Return a line for each node and each host without one, in natural order, which is found once for the same names.
export function useLines(overview) {
  const lines = useMemo(() => linesOf(overview), [overview]);
  const names = useSame(useMemo(() => lines.flatMap(({ host, nodename }) => [host, nodename]), [lines]));
  const places = useMemo(() => sortPlaces(lines), [names]);
  return useMemo(() => places.map((place) => lines[place]), [lines, places]);
}

// The fullest nodes of those that the address selects.
function Fullest({ query }) {
  const { nodes = [] } = useList("nodes", { ...filtersOf(query), limit: LINES, with_count: true, sort_key: "fullness", sort_dir: "desc" }, 0).data ?? {};
  return nodes.length > 0 && section("Fullest nodes", fixed("Fullest nodes", PAGED, nodes, { look: "dense", classOf }));
}

// What is shown while the overview of a large fleet is being made: of what only that can select, nothing.
function FirstNodes() {
  const { query } = useLocation();
  const canSelect = ["", ...PAGED_CHOICES.only].some((each) => [each].flat()[0] === (query.only ?? ""));
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(setLate, LATE_MS, true);
    return () => clearTimeout(timer);
  }, []);
  return html`${quiet("Loading the fleet…")}${isLate && canSelect && html`<${Fullest} query=${query} />`}`;
}

function Fleet({ overview }) {
  const nodes = useLines(overview);
  return html`${health(overview.health, overview.summary)}<${Attention} causes=${overview.health.causes} />
    <section class="brief" aria-label="Totals"><${TrendTotals} amounts=${overview.totals} left=${overview.left} measured=${overview.measured} path="/v1/trends" /></section>
    ${nodes.length > 1 && html`<section class="brief" aria-label="Map"><${Tiles} nodes=${nodes} /></section>`}
    ${section("Nodes", html`<${overview.truncated ? PagedNodes : Nodes} nodes=${overview.truncated ? overview.nodes : nodes} />`)}`;
}

export const Overview = () => answer(usePoll("/v1/overview"), (overview) => html`<${Fleet} overview=${overview} />`, html`<${FirstNodes} />`);
