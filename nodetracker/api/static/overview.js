// The overview: health in words, totals, and the table of nodes with its filters.
import { usePoll } from "./api.js";
import { Bar, fillOf, Totals, usedOf } from "./amounts.js";
import { amountOf, join, number, plural } from "./format.js";
import { html, useMemo } from "./preact.js";
import { hrefOf, setQuery, useLocation } from "./router.js";
import { NODE, Table } from "./table.js";
import { Tiles } from "./tiles.js";
import { Answer, Choice, Mark, Section, State, wordsOf } from "./widgets.js";

// Return whether a node's claims and guests use more than its ratios allow.
const isOvercommitted = ({ amounts }) => Object.values(amounts).some((use) => fillOf(use) > 1);

// Return whether a node should have been read since, although its host is up.
const isUnread = ({ state, freshness }) => state === "up" && (freshness === "late" || freshness === "stale");

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

// Return how many nodes the fleet has, those that the answer leaves out included.
export const countNodes = ({ states }) => sum(states);

function countHosts({ truncated, states, nodes }, state) {
  if (truncated) return plural(states[state], "node");
  return plural(new Set(nodes.filter((node) => node.state === state).map(({ host }) => host)).size, "host");
}

// Return what is wrong, worst first: {level, text, href} each.
export function findProblems(overview) {
  const { nodes, states, freshness, warnings } = overview;
  const unread = nodes.filter(isUnread).length;
  const over = nodes.filter(isOvercommitted).length;
  return [
    ...["down", "unreachable"].map((state) => [states[state], `${countHosts(overview, state)} ${state}`, { state }, "bad"]),
    [unread, `${plural(unread, "node")} not read recently`, { only: "unread" }],
    [freshness.never, `${plural(freshness.never, "node")} never read`, { freshness: "never" }],
    [over, `${plural(over, "node")} overcommitted`, { only: "overcommitted" }],
    [sum(warnings), plural(sum(warnings), "warning"), null],
  ]
    .filter(([count]) => count > 0)
    .map(([, text, query, level = "warning"]) => ({ level, text, href: query ? hrefOf("/", query) : hrefOf("/warnings") }));
}

// Return the sentence that says that nothing is wrong.
export function praise(count) {
  if (count === 0) return "No node yet";
  return count === 1 ? "The node is fine" : `All ${plural(count, "node")} are fine`;
}

const CHOICES = {
  state: ["up", "down", "unreachable"],
  status: ["enabled", "disabled"],
  freshness: ["fresh", "late", "stale", "never"],
};
const ONLY = {
  overcommitted: ["overcommitted", isOvercommitted],
  unread: ["not read recently", isUnread],
  warnings: ["with warnings", ({ warnings }) => warnings > 0],
  maintenance: ["in maintenance", ({ maintenance }) => maintenance],
};
const FILTERS = ["text", "only", ...Object.keys(CHOICES)];
const SEVERITY = ["unreachable", "down", "never read", "overcommitted", "stale", "late", "maintenance", "disabled"];
const KINDS = ["instance", "container"];

// Return the rank of what is worst about a node.
function severityOf(node) {
  const words = [...wordsOf(node), isOvercommitted(node) && "overcommitted"];
  const rank = SEVERITY.findIndex((word) => words.includes(word));
  return rank < 0 ? SEVERITY.length : rank;
}

// Shared and pinned CPUs are one column: most nodes have only one of them.
const cpuOf = ({ VCPU, PCPU }) =>
  PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU";

const barColumn = (id, title, resourceOf) => ({
  id, title, isNumeric: true,
  value: ({ amounts }) => fillOf(amounts[resourceOf(amounts)]),
  cell: (fill, { amounts }) => {
    const resource = resourceOf(amounts);
    const use = amounts[resource];
    const text = `${amountOf(resource, usedOf(use), use.limit)}${resource === "PCPU" ? " pinned" : ""}`;
    return html`<${Bar} use=${use} /><span class="amount">${fill > 1 ? html`<${Mark} word=${text} level="warning" />` : text}</span>`;
  },
});

const countColumn = (id, title, value) => ({
  id, title, isNumeric: true, value, cell: (count) => html`<span class=${count > 0 ? "" : "quiet"}>${number(count)}</span>`,
});

const COLUMNS = [
  { id: "state", title: "State", value: severityOf, cell: (rank, node) => html`<${State} of=${node} />` },
  { id: "host", title: "Host" },
  { ...NODE, cell: (nodename, { uuid }) => NODE.cell(nodename, { node_uuid: uuid }) },
  barColumn("cpu", "CPU", cpuOf),
  barColumn("memory", "Memory", () => "MEMORY_MB"),
  barColumn("disk", "Disk", () => "DISK_GB"),
];
const WARNINGS = countColumn("warnings", "Warnings", ({ warnings }) => warnings);

// Return the columns, without guests of a kind that the fleet does not have.
const columnsFor = (kinds) => [
  ...COLUMNS,
  ...kinds.map((kind) => countColumn(`${kind}s`, kind === "instance" ? "Instances" : "Containers", ({ guests }) => guests[kind])),
  WARNINGS,
];

const textOf = ({ host, nodename, uuid }) => `${host}\n${nodename}\n${uuid}`.toLowerCase();

// Return the filter of a query, undefined for none.
function filterOf({ text = "", only, ...query }) {
  const wanted = text.trim().toLowerCase();
  const tests = Object.keys(CHOICES).filter((name) => query[name]).map((name) => (node) => node[name] === query[name]);
  if (ONLY[only]) tests.push(ONLY[only][1]);
  if (wanted) tests.push((node) => textOf(node).includes(wanted));
  return tests.length > 0 ? (node) => tests.every((test) => test(node)) : undefined;
}

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

function Filters({ query }) {
  const clear = () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="grow">Find
      <input type="search" placeholder="host, node or UUID" value=${query.text ?? ""}
        onInput=${({ target }) => setQuery({ text: target.value })} />
    </label>
    ${Object.entries(CHOICES).map(([name, values]) => html`<${Choice} name=${name} title=${capitalize(name)}
      values=${values.map((each) => [each, each])} />`)}
    <${Choice} name="only" title="Only" values=${Object.entries(ONLY).map(([name, [title]]) => [name, title])} />
    ${FILTERS.some((name) => query[name]) && html`<button type="button" onClick=${clear}>Clear</button>`}
  </form>`;
}

const classOf = ({ state }) => state !== "up" && "off";

function Nodes({ overview: { nodes, guests, truncated } }) {
  const { query } = useLocation();
  const kinds = KINDS.filter((kind) => guests[kind] > 0);
  const columns = useMemo(() => columnsFor(kinds), [kinds.join()]);
  const isShown = useMemo(() => filterOf(query), FILTERS.map((name) => query[name]));
  return html`<${Section} title="Nodes">
    <${Filters} query=${query} />
    ${truncated && html`<p class="quiet">The first ${plural(nodes.length, "node")} of the fleet; totals are those of all.</p>`}
    <${Table} caption="Nodes" columns=${columns} rows=${nodes} isShown=${isShown} classOf=${classOf} empty="No node is like that." />
  <//>`;
}

function Health({ overview }) {
  const problems = useMemo(() => findProblems(overview), [overview]);
  const count = countNodes(overview);
  const { disabled } = overview.statuses;
  const isFine = problems.length === 0;
  return html`<section class="health" aria-label="Health">
    ${isFine
      ? html`<p><${Mark} word=${praise(count)} level=${count ? "good" : ""} /></p>`
      : html`<ul>${problems.map(({ level, text, href }) => html`<li key=${href}>
          <a href=${href}><${Mark} word=${text} level=${level} /></a></li>`)}</ul>`}
    <p class="quiet">${!isFine && plural(count, "node")}${!isFine && disabled > 0 && ", "}
      ${disabled > 0 && html`<a href=${hrefOf("/", { status: "disabled" })}>${number(disabled)} disabled</a>`}</p>
  </section>`;
}

function Fleet({ overview }) {
  const { nodes, totals, guests, claims } = overview;
  const counts = [
    ...KINDS.map((kind) => plural(guests[kind], kind)), `${plural(claims.confirmed, "claim")} confirmed`, `${number(claims.held)} held`,
  ];
  return html`<${Health} overview=${overview} />
    <section aria-label="Totals"><${Totals} amounts=${totals} /><p class="quiet">${join(counts)}</p></section>
    ${nodes.length > 1 && html`<section aria-label="Map"><${Tiles} nodes=${nodes} /></section>`}
    <${Nodes} overview=${overview} />`;
}

// Render the view.
export const Overview = () =>
  html`<${Answer} poll=${usePoll("/v1/overview")}>${(overview) => html`<${Fleet} overview=${overview} />`}<//>`;
