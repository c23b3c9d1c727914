// The table of nodes, with its filters.
import { Bar, fillOf, usedOf } from "./bars.js";
import { Choice } from "./choice.js";
import { stateColumn, textColumn } from "./columns.js";
import { amountOf, number, plural } from "./format.js";
import { isOvercommitted, isUnread } from "./health.js";
import { Name } from "./name.js";
import { html, useMemo } from "./preact.js";
import { hrefOf, setQuery, useLocation } from "./router.js";
import { wordsOf } from "./state.js";
import { Table } from "./table.js";

const CHOICES = {
  state: ["up", "down", "unreachable"],
  status: ["enabled", "disabled"],
  freshness: ["fresh", "late", "stale", "never"],
};
const ONLY = {
  overcommitted: isOvercommitted,
  unread: isUnread,
  warnings: ({ warnings }) => warnings > 0,
  maintenance: ({ maintenance }) => maintenance,
};
const ONLY_TITLES = {
  overcommitted: "overcommitted",
  unread: "not read recently",
  warnings: "with warnings",
  maintenance: "in maintenance",
};
const SEVERITY = ["unreachable", "down", "never", "stale", "late", "maintenance", "disabled"];

function Amount({ resource, use }) {
  const isOver = fillOf(use) > 1;
  return html`<${Bar} use=${use} /><span class=${isOver ? "amount warning" : "amount"}>
    ${isOver && html`<span aria-hidden="true">◆ </span>`}${amountOf(resource, usedOf(use), use.limit)}${resource === "PCPU" && " pinned"}
  </span>`;
}

// Shared and pinned CPUs are one column: most nodes have only one of them.
const cpuOf = ({ VCPU, PCPU }) =>
  PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU";

function resourceColumn(id, title, resourceOf) {
  return {
    id,
    title,
    isNumeric: true,
    value: ({ amounts }) => fillOf(amounts[resourceOf(amounts)]),
    cell: ({ amounts }) => {
      const resource = resourceOf(amounts);
      return html`<${Amount} resource=${resource} use=${amounts[resource]} />`;
    },
  };
}

const countColumn = (id, title, value) => ({
  id,
  title,
  isNumeric: true,
  value,
  cell: (node) => html`<span class=${value(node) > 0 ? "" : "quiet"}>${number(value(node))}</span>`,
});

const severity = (node) => {
  const rank = Math.min(...wordsOf(node).map((word) => SEVERITY.indexOf(word) + 1 || 99));
  return isOvercommitted(node) ? Math.min(rank, 3.5) : rank;
};

const COLUMNS = [
  stateColumn(severity),
  textColumn("host", "Host", { value: ({ host, nodename }) => `${host}\u0000${nodename}` }),
  {
    id: "node",
    title: "Node",
    value: ({ nodename }) => nodename,
    cell: ({ uuid, nodename }) => html`<a href=${hrefOf(`/nodes/${uuid}`)}><${Name} text=${nodename} /></a>`,
  },
  resourceColumn("cpu", "CPU", cpuOf),
  resourceColumn("memory", "Memory", () => "MEMORY_MB"),
  resourceColumn("disk", "Disk", () => "DISK_GB"),
];
const WARNINGS = countColumn("warnings", "Warnings", ({ warnings }) => warnings);
const GUESTS = {
  instance: countColumn("instances", "Instances", ({ guests }) => guests.instance),
  container: countColumn("containers", "Containers", ({ guests }) => guests.container),
};

// Return the columns, without guests of a kind that the fleet does not have.
const columnsFor = (kinds) => [...COLUMNS, ...kinds.map((kind) => GUESTS[kind]), WARNINGS];

const texts = new WeakMap(); // node -> what the filter's text is looked for in

function textOf(node) {
  let text = texts.get(node);
  if (text === undefined) {
    text = `${node.host}\n${node.nodename}\n${node.uuid}`.toLowerCase();
    texts.set(node, text);
  }
  return text;
}

// Return the filter of a query, null for none.
export function filterOf({ text = "", only, ...query }) {
  const wanted = text.trim().toLowerCase();
  const tests = Object.keys(CHOICES)
    .filter((name) => CHOICES[name].includes(query[name]))
    .map((name) => (node) => node[name] === query[name]);
  if (ONLY[only]) tests.push(ONLY[only]);
  if (wanted) tests.push((node) => textOf(node).includes(wanted));
  return tests.length === 0 ? null : (node) => tests.every((test) => test(node));
}

const FILTERS = ["text", "only", ...Object.keys(CHOICES)];

function Filters({ query }) {
  const isFiltered = FILTERS.some((name) => query[name]);
  const clear = () => setQuery(Object.fromEntries([...FILTERS, "page"].map((name) => [name, ""])));
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="grow">Find
      <input type="search" placeholder="host, node or UUID" value=${query.text ?? ""}
        onInput=${(event) => setQuery({ text: event.target.value, page: "" })} />
    </label>
    ${Object.entries(CHOICES).map(
      ([name, values]) => html`<${Choice} name=${name} title=${name[0].toUpperCase() + name.slice(1)}
        values=${values.map((each) => [each, each])} />`,
    )}
    <${Choice} name="only" title="Only" values=${Object.entries(ONLY_TITLES)} />
    ${isFiltered && html`<button type="button" onClick=${clear}>Clear</button>`}
  </form>`;
}

const classOf = ({ state }) => (state === "up" ? "" : "off");
const keyOf = ({ uuid }) => uuid;

// Render the nodes of an overview.
export function Nodes({ nodes, guests, isTruncated }) {
  const { query } = useLocation();
  const wanted = FILTERS.map((name) => query[name] ?? "").join("\u0000");
  const kinds = Object.keys(GUESTS).filter((kind) => guests[kind] > 0);
  const columns = useMemo(() => columnsFor(kinds), [kinds.join()]);
  const isShown = useMemo(() => filterOf(query), [wanted]);
  return html`<section aria-labelledby="nodes-title">
    <h2 id="nodes-title">Nodes</h2>
    <${Filters} query=${query} />
    ${isTruncated && html`<p class="quiet">The first ${plural(nodes.length, "node")} of the fleet; totals are those of all.</p>`}
    <${Table} caption="Nodes" columns=${columns} rows=${nodes} isShown=${isShown} keyOf=${keyOf}
      classOf=${classOf} empty="No node is like that." />
  </section>`;
}
