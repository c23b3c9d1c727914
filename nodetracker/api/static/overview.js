// The overview: health in words, totals, and the table of nodes with its filters.
import { bar, fillOf, totals, usedOf } from "./amounts.js";
import { usePoll } from "./api.js";
import { amountOf, join, number, plural } from "./format.js";
import { html, useMemo } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { column, HOST, NODE, numeric, Table } from "./table.js";
import { Tiles } from "./tiles.js";
import { answer, button, Choice, link, list, mark, quiet, Section, states, wordsOf } from "./widgets.js";

const CHOICES = {
  state: ["up", "down", "unreachable"],
  status: ["enabled", "disabled"],
  freshness: ["fresh", "late", "stale", "never"],
};
const isOvercommitted = ({ amounts }) => Object.values(amounts).some((use) => fillOf(use) > 1);
const isUnread = ({ state, freshness }) => state === "up" && (freshness === "late" || freshness === "stale");
const ONLY = {
  overcommitted: ["overcommitted", isOvercommitted],
  unread: ["not read recently", isUnread],
  warnings: ["with warnings", ({ warnings }) => warnings > 0],
  maintenance: ["in maintenance", ({ maintenance }) => maintenance],
};
const FILTERS = ["text", "only", ...Object.keys(CHOICES)];
const SEVERITY = ["unreachable", "down", "never read", "overcommitted", "stale", "late", "maintenance", "disabled"];
const KINDS = ["instance", "container"];

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

function countHosts({ truncated, states: counts, nodes }, state) {
  if (truncated) return plural(counts[state], "node");
  return plural(new Set(nodes.filter((node) => node.state === state).map(({ host }) => host)).size, "host");
}

// Return what is wrong, worst first: {level, text, path, query} each.
export function findProblems(overview) {
  const { nodes, states: counts, freshness, warnings } = overview;
  const unread = nodes.filter(isUnread).length;
  const over = nodes.filter(isOvercommitted).length;
  const warned = sum(warnings);
  return [
    ...["down", "unreachable"].map((state) => [counts[state], `${countHosts(overview, state)} ${state}`, { state }, "bad"]),
    [unread, `${plural(unread, "node")} not read recently`, { only: "unread" }],
    [freshness.never, `${plural(freshness.never, "node")} never read`, { freshness: "never" }],
    [over, `${plural(over, "node")} overcommitted`, { only: "overcommitted" }],
    [warned, plural(warned, "warning")],
  ].filter(([count]) => count > 0).map(([, text, query, level = "warning"]) => ({ level, text, query, path: query ? "/" : "/warnings" }));
}

export function praise({ states: counts }) {
  const count = sum(counts);
  if (count < 2) return count ? "The node is fine" : "No node yet";
  return `All ${plural(count, "node")} are fine`;
}

function severityOf(node) {
  const words = [...wordsOf(node), isOvercommitted(node) && "overcommitted"];
  const rank = SEVERITY.findIndex((word) => words.includes(word));
  return rank < 0 ? SEVERITY.length : rank;
}

// Shared and pinned CPUs are one column: most nodes have only one of them.
const cpuOf = ({ VCPU, PCPU }) => (PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU");

const barColumn = (id, title, resourceOf) => numeric(id, title, (fill, { amounts }) => {
  const resource = resourceOf(amounts);
  const use = amounts[resource];
  const text = amountOf(resource, usedOf(use), use.limit) + (resource === "PCPU" ? " pinned" : "");
  return html`${bar(use)}<span class="amount">${fill > 1 ? mark(text, "warning") : text}</span>`;
}, ({ amounts }) => fillOf(amounts[resourceOf(amounts)]));

const countColumn = (id, title, value) => numeric(id, title, (count) => html`<span class=${count ? "" : "quiet"}>${number(count)}</span>`, value);

const COLUMNS = [
  column("state", "State", (_, node) => states(node), severityOf),
  HOST,
  { ...NODE, cell: (nodename, { uuid }) => NODE.cell(nodename, { node_uuid: uuid }) },
  barColumn("cpu", "CPU", cpuOf),
  barColumn("memory", "Memory", () => "MEMORY_MB"),
  barColumn("disk", "Disk", () => "DISK_GB"),
];
const COUNTS = {
  instance: countColumn("instances", "Instances", ({ guests }) => guests.instance),
  container: countColumn("containers", "Containers", ({ guests }) => guests.container),
  warning: countColumn("warnings", "Warnings"),
};

function filterOf({ text = "", only, ...query }) {
  const wanted = text.trim().toLowerCase();
  const tests = Object.keys(CHOICES).filter((name) => query[name]).map((name) => (node) => node[name] === query[name]);
  if (ONLY[only]) tests.push(ONLY[only][1]);
  if (wanted) tests.push(({ host, nodename, uuid }) => `${host}\n${nodename}\n${uuid}`.toLowerCase().includes(wanted));
  return tests.length > 0 ? (node) => tests.every((test) => test(node)) : undefined;
}

const filters = (query) => html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
  <label class="grow">Find <input type="search" placeholder="host, node or UUID" value=${query.text ?? ""}
    onInput=${({ target }) => setQuery({ text: target.value })} /></label>
  ${Object.entries(CHOICES).map(([name, values]) => html`<${Choice} name=${name} title=${name[0].toUpperCase() + name.slice(1)}
    values=${values.map((each) => [each, each])} />`)}
  <${Choice} name="only" title="Only" values=${Object.entries(ONLY).map(([name, [title]]) => [name, title])} />
  ${FILTERS.some((name) => query[name]) && button("Clear", () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""]))))}
</form>`;

const classOf = ({ state }) => state !== "up" && "off";

// The table of nodes, without guests of a kind that the fleet does not have.
function Nodes({ overview: { nodes, guests, truncated } }) {
  const { query } = useLocation();
  const kinds = KINDS.filter((kind) => guests[kind] > 0);
  const columns = useMemo(() => [...COLUMNS, ...[...kinds, "warning"].map((kind) => COUNTS[kind])], [kinds.join()]);
  const isShown = useMemo(() => filterOf(query), FILTERS.map((name) => query[name]));
  return html`<${Section} title="Nodes">${filters(query)}
    ${truncated && quiet(`The first ${plural(nodes.length, "node")} of the fleet; totals are those of all.`)}
    <${Table} caption="Nodes" columns=${columns} rows=${nodes} isShown=${isShown} classOf=${classOf} empty="No node is like that." />
  <//>`;
}

function Health({ overview }) {
  const problems = useMemo(() => findProblems(overview), [overview]);
  const count = sum(overview.states);
  const { disabled } = overview.statuses;
  const isBad = problems.length > 0;
  return html`<section class="health" aria-label="Health">
    ${isBad
      ? list(problems.map(({ level, text, path, query }) => link(path, mark(text, level), query)))
      : mark(praise(overview), count ? "good" : "")}
    ${quiet([isBad && plural(count, "node"), isBad && disabled > 0 && ", ",
      disabled > 0 && link("/", `${number(disabled)} disabled`, { status: "disabled" })])}
  </section>`;
}

export const Overview = () => answer(usePoll("/v1/overview"), (overview) => {
  const { nodes, guests, claims } = overview;
  const counts = [
    ...KINDS.map((kind) => plural(guests[kind], kind)), `${plural(claims.confirmed, "claim")} confirmed`, `${number(claims.held)} held`,
  ];
  return html`<${Health} overview=${overview} />
    <section aria-label="Totals">${totals(overview.totals)}${quiet(join(counts))}</section>
    ${nodes.length > 1 && html`<section aria-label="Map"><${Tiles} nodes=${nodes} /></section>`}
    <${Nodes} overview=${overview} />`;
});
