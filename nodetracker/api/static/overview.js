// The overview: health in words, totals, and the table of nodes with its filters.
import { amountOf, bar, fillOf, fullestOf, totals, usedOf } from "./amounts.js";
import { usePoll } from "./api.js";
import { join, number, plural } from "./format.js";
import { List } from "./lists.js";
import { html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { column, HOST, numeric, Table } from "./table.js";
import { Tiles } from "./tiles.js";
import { answer, button, link, list, mark, nodeLink, quiet, section, select, states, wordsOf } from "./widgets.js";

const CHOICES = { // by which nodes are filtered: [value, text] each
  state: [["up"], ["down"], ["unreachable"]],
  status: [["enabled"], ["disabled"]],
  freshness: [["fresh"], ["late"], ["stale"], ["never"]],
  only: [["overcommitted"], ["unread", "not read recently"], ["warnings", "with warnings"]],
};
const ONLY = {
  overcommitted: (node) => fullestOf(node) > 1,
  unread: ({ state, freshness }) => state === "up" && (freshness === "late" || freshness === "stale"),
  warnings: ({ warnings }) => warnings > 0,
};
const FILTERS = ["text", "marker", ...Object.keys(CHOICES)];
const SEVERITY = ["unreachable", "down", "never read", "stale", "late", "maintenance", "disabled", "up"];

const severityOf = (node) => Math.min(...wordsOf(node).map((word) => SEVERITY.indexOf(word)));

// Shared and pinned CPUs are one column: most nodes have only one of them.
const cpuOf = ({ VCPU, PCPU }) => (PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU");

const barColumn = (id, title, resourceOf) => numeric(id, title, (fill, { amounts }) => {
  const resource = resourceOf(amounts);
  const use = amounts[resource];
  const text = amountOf(resource, usedOf(use), use.limit) + (resource === "PCPU" ? " pinned" : "");
  return html`${bar(use)}<span class="amount">${fill > 1 ? mark(text, "warning") : text}</span>`;
}, ({ amounts }) => fillOf(amounts[resourceOf(amounts)]));

// Columns of nodes of the overview, and of /v1/nodes, which names some values otherwise.
const COLUMNS = [
  column("state", "State", (_, node) => states(node), severityOf),
  HOST,
  column("node", "Node", (nodename, { uuid }) => nodeLink({ node_uuid: uuid, nodename }), (node) => node.nodename ?? node.hypervisor_hostname),
  barColumn("cpu", "CPU", cpuOf),
  barColumn("memory", "Memory", () => "MEMORY_MB"),
  barColumn("disk", "Disk", () => "DISK_GB"),
  numeric("instances", "Instances", number, ({ guests, running_vms: count }) => guests?.instance ?? count),
  numeric("containers", "Containers", number, ({ guests, total_containers: count }) => guests?.container ?? count),
];
const WITH_WARNINGS = [...COLUMNS, numeric("warnings", "Warnings")];

function filterOf({ text = "", only, ...query }) {
  const wanted = text.trim().toLowerCase();
  const tests = Object.keys(CHOICES).filter((name) => query[name]).map((name) => (node) => node[name] === query[name]);
  if (only in ONLY) tests.push(ONLY[only]);
  if (wanted) tests.push(({ host, nodename, uuid }) => `${host}\n${nodename}\n${uuid}`.toLowerCase().includes(wanted));
  return tests.length > 0 ? (node) => tests.every((test) => test(node)) : undefined;
}

const filters = (query, names, find) => html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
  <label class="grow">Find <input type="search" placeholder=${find} value=${query.text ?? ""}
    onInput=${({ target }) => setQuery({ text: target.value, marker: "" })} /></label>
  ${names.map((name) => select(name[0].toUpperCase() + name.slice(1), query[name] ?? "", [["", "all"], ...CHOICES[name]],
    (value) => setQuery({ [name]: value, marker: "" })))}
  ${FILTERS.some((name) => query[name]) && button("Clear", () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""]))))}
</form>`;

const classOf = ({ state }) => state !== "up" && "off";

function Nodes({ nodes }) {
  const { query } = useLocation();
  const isShown = useMemo(() => filterOf(query), FILTERS.map((name) => query[name]));
  return html`${filters(query, Object.keys(CHOICES), "host, node or UUID")}
    <${Table} caption="Nodes" columns=${WITH_WARNINGS} rows=${nodes} isShown=${isShown} classOf=${classOf} empty="No node is like that." />`;
}

// The nodes of a fleet that is too large for the overview, page by page, with the filters that the API has.
function PagedNodes({ nodes }) {
  const { query } = useLocation();
  const { text: name_part, state, status } = query;
  return html`${filters(query, ["state", "status"], "part of a node's name")}
    ${quiet(`The fleet has more than ${plural(nodes.length, "node")}: they are listed page by page in order of their hosts, and cannot be filtered by freshness, warnings and overcommitment.`)}
    <${List} noun="nodes" filters=${Object.entries({ sort_key: "host", name_part, state, status })} isFixed columns=${COLUMNS}
      classOf=${classOf} next="Next nodes" empty="No node is like that." />`;
}

const health = ({ health: { level, text, problems }, statuses: { disabled } }) => html`<section class="health" aria-label="Health">
  ${problems.length > 0
    ? list(problems.map((each) => link(Object.keys(each.filters).length > 0 ? "/" : "/warnings", mark(each.text, each.level), each.filters)))
    : mark(text, level)}
  ${disabled > 0 && quiet(link("/", `${number(disabled)} disabled`, { status: "disabled" }))}
</section>`;

export const Overview = () => answer(usePoll("/v1/overview"), (overview) => {
  const { nodes, statuses: { enabled, disabled }, guests, claims, truncated } = overview;
  const counts = [
    plural(enabled + disabled, "node"), ...Object.entries(guests).map(([kind, count]) => plural(count, kind)),
    `${plural(claims.confirmed, "claim")} confirmed`, `${number(claims.held)} held`,
  ];
  return html`${health(overview)}
    <section aria-label="Totals">${totals(overview.totals)}${quiet(join(counts))}</section>
    ${nodes.length > 1 && html`<section aria-label="Map"><${Tiles} nodes=${nodes} /></section>`}
    ${section("Nodes", html`<${truncated ? PagedNodes : Nodes} nodes=${nodes} />`)}`;
});
