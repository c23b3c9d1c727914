// Where would it fit: nodes for a workload with what they have left, and what excludes the others.
import { nodeColumn, textColumn } from "./columns.js";
import { ErrorText } from "./dialog.js";
import { useFollow } from "./follow.js";
import { amount, number, plural } from "./format.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { Table } from "./table.js";

const FIELDS = [
  { name: "cpus", title: "CPUs", resource: "VCPU", factor: 1 },
  { name: "pinned", title: "Pinned CPUs", resource: "PCPU", factor: 1 },
  { name: "memory", title: "Memory (GiB)", resource: "MEMORY_MB", factor: 1024 },
  { name: "disk", title: "Disk (GiB)", resource: "DISK_GB", factor: 1 },
];
const CHECKS = {
  service: "have no agent", enabled: "are disabled", maintenance: "are in maintenance",
  up: "are down or unreachable", traits: "lack a trait", facts: "are not read well enough",
  cpu: "have too few CPUs free", pcpu: "have too few CPUs to pin", ram: "have too little memory free",
  disk: "have too little disk free", classes: "lack another resource",
  numa: "fit no NUMA cell", pci: "lack a device",
};
const LIMIT = 100;

const amountsOf = (query) => FIELDS
  .map(({ name, resource, factor }) => [resource, Math.round(Number(query[name] || 0) * factor)])
  .filter(([, value]) => value > 0);

function columnsOf(wanted) {
  const asked = Object.fromEntries(wanted);
  const column = (id, title, name, resource) => ({
    id, title, isNumeric: true, value: (row) => row[name],
    cell: (row) => html`${amount(resource, row[name])}<span class="quiet"> → ${amount(resource, row[name] - (asked[resource] ?? 0))}</span>`,
  });
  return [
    nodeColumn("node", "Node", "host", "nodename"),
    textColumn("host", "Host"),
    column("cpus", "CPUs left", "free_vcpus", "VCPU"),
    column("memory", "Memory left", "free_memory_mb", "MEMORY_MB"),
    column("disk", "Disk left", "free_disk_gb", "DISK_GB"),
  ];
}

function Excluded({ excluded: { total_nodes: total, checks, nearest } }) {
  return html`<section aria-labelledby="others"><h2 id="others">What excludes the others</h2>
    ${checks.length === 0
      ? html`<p class="quiet">${total === 0 ? "The fleet has no node." : "Nothing: every node fits."}</p>`
      : html`<ul>${checks.map(({ check, nodes, is_lower_bound }) => html`<li>
          ${is_lower_bound && "at least "}${number(nodes)} of ${plural(total, "node")} ${CHECKS[check] ?? check}</li>`)}</ul>`}
    ${nearest && html`<p>The nearest is <${NodeLink} ...${nearest} /> of <bdi>${nearest.host}</bdi>:</p>
      <ul>${nearest.reasons.map((reason) => html`<li>${reason}</li>`)}</ul>`}
  </section>`;
}

function Candidates({ wanted, traits }) {
  const resources = wanted.map(([name, value]) => `${name}:${value}`).join(",");
  const required = traits ? `&required=${encodeURIComponent(traits)}` : "";
  const { data, error } = useFollow(`/v1/candidates?limit=${LIMIT}&resources=${resources}${required}`, 0);
  if (error) return html`<${ErrorText} error=${error} />`;
  if (!data) return html`<p class="quiet">Looking…</p>`;
  const { candidates, excluded } = data;
  return html`<section aria-labelledby="fit"><h2 id="fit">${plural(candidates.length, "node")}${excluded ? "" : " or more"} would take it</h2>
      ${candidates.length > 0 && html`<${Table} caption="Candidates, best first" rows=${candidates} columns=${columnsOf(wanted)}
        keyOf=${({ host, nodename }) => `${host} ${nodename}`} />`}
    </section>
    ${excluded && html`<${Excluded} excluded=${excluded} />`}`;
}

// Render the view.
export function Fit() {
  const { query } = useLocation();
  const wanted = amountsOf(query);
  const traits = (query.traits ?? "").split(/[\s,]+/).filter(Boolean).join(",");
  const search = (event) => {
    event.preventDefault();
    setQuery({ ...Object.fromEntries(new FormData(event.target)), page: "", sort: "" });
  };
  return html`<form class="filters" onSubmit=${search}>
      ${FIELDS.map(({ name, title }) => html`<label>${title}
        <input type="number" name=${name} min="0" step="any" defaultValue=${query[name] ?? ""} /></label>`)}
      <label class="grow">Traits <input name="traits" placeholder="HW_CPU_X86_AVX2, CUSTOM_…" defaultValue=${query.traits ?? ""} /></label>
      <button class="primary">Find nodes</button>
    </form>
    ${wanted.length > 0 && html`<${Candidates} key=${JSON.stringify([wanted, traits])} wanted=${wanted} traits=${traits} />`}`;
}
