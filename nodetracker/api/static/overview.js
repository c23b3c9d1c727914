// The overview: health in words, totals, and the table of nodes with its filters.
import { amountOf, bar, fillOf, fullestOf, totals, usedOf } from "./amounts.js";
import { usePoll } from "./api.js";
import { number, plural } from "./format.js";
import { List } from "./lists.js";
import { html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { column, HOST, numeric, Table } from "./table.js";
import { Tiles } from "./tiles.js";
import { answer, link, list, mark, nodeLink, quiet, section, select, sentence, states, wordsOf } from "./widgets.js";

const CHOICES = { // by which nodes are filtered: [value, text] each
  state: [["up"], ["down"], ["unreachable"]],
  status: [["enabled"], ["disabled"]],
  freshness: [["fresh"], ["late"], ["stale"], ["never"]],
  only: [["overcommitted"], ["unread", "not read recently"], ["maintenance", "in maintenance"], ["warnings", "with warnings"]],
};
const ONLY = {
  overcommitted: (node) => fullestOf(node) > 1,
  maintenance: (node) => node.maintenance,
  unread: ({ state, freshness }) => state === "up" && (freshness === "late" || freshness === "stale"),
  warnings: ({ warnings }) => warnings > 0,
};
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
  ${Object.keys(query).length > 0 && link("/", "Clear")}
</form>`;

const classOf = ({ state }) => state !== "up" && "off";

function Nodes({ nodes }) {
  const { query } = useLocation();
  const isShown = useMemo(() => filterOf(query), [query.text, ...Object.keys(CHOICES).map((name) => query[name])]);
  return html`${filters(query, Object.keys(CHOICES), "host, node or UUID")}
    <${Table} caption="Nodes" columns=${WITH_WARNINGS} rows=${nodes} isShown=${isShown} classOf=${classOf} empty="No node is like that." />`;
}

// The nodes of a fleet that is too large for the overview, page by page, with the filters that the API has.
function PagedNodes({ nodes }) {
  const { query } = useLocation();
  return html`${filters(query, ["state", "status"], "part of a node's name")}
    ${quiet(`The fleet has more than ${plural(nodes.length, "node")}: they are listed page by page in order of their hosts, and cannot be filtered by freshness, warnings and overcommitment.`)}
    <${List} noun="nodes" filters=${{ sort_key: "host", name_part: query.text, state: query.state, status: query.status }} isFixed columns=${COLUMNS}
      classOf=${classOf} next="Next nodes" empty="No node is like that." />`;
}

// The list of nodes may be far below what leads to it.
function showNodes() {
  const heading = document.getElementById("nodes");
  heading.focus();
  heading.scrollIntoView();
}

const findings = (found, show) => list(found.map(({ level, text, path, filters }) => {
  const shown = show(text, level);
  return path ? html`<span onClick=${showNodes}>${link(path, shown, filters)}</span>` : shown;
}));

const health = ({ level, text, problems, notes }) => html`<section class="health" aria-label="Health">
  ${problems.length > 0 ? findings(problems, mark) : mark(text, level)}
  ${notes.length > 0 && html`<div class="quiet">${findings(notes, sentence)}</div>`}
</section>`;

export const Overview = () => answer(usePoll("/v1/overview"), (overview) => {
  const { nodes, truncated } = overview;
  return html`${health(overview.health)}
    <section aria-label="Totals">${totals(overview.totals)}${quiet(overview.summary)}</section>
    ${nodes.length > 1 && html`<section aria-label="Map"><${Tiles} nodes=${nodes} /></section>`}
    ${section("Nodes", html`<${truncated ? PagedNodes : Nodes} nodes=${nodes} />`)}`;
});
