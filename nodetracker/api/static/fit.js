// Where would it fit: nodes for a workload with what they have left, and what excludes the others.
import { usePoll } from "./api.js";
import { amount, number, plural } from "./format.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { HOST, NODE, numeric, Table } from "./table.js";
import { answer, list, NodeLink, QueryForm, quiet, Section } from "./widgets.js";

const FIELDS = [
  { name: "cpus", title: "CPUs", resource: "VCPU" },
  { name: "pinned", title: "Pinned CPUs", resource: "PCPU" },
  { name: "memory", title: "Memory (GiB)", resource: "MEMORY_MB", factor: 1024 },
  { name: "disk", title: "Disk (GiB)", resource: "DISK_GB" },
];
const CHECKS = {
  service: "have no agent", enabled: "are disabled", maintenance: "are in maintenance",
  up: "are down or unreachable", traits: "lack a trait", facts: "are not read well enough",
  cpu: "have too few CPUs free", pcpu: "have too few CPUs to pin", ram: "have too little memory free",
  disk: "have too little disk free", classes: "lack another resource",
  numa: "fit no NUMA cell", pci: "lack a device",
};
const LIMIT = 100;

function columnsFor(wanted) {
  const left = (resource) => (free) =>
    html`${amount(resource, free)}<span class="quiet"> → ${amount(resource, free - (wanted.get(resource) ?? 0))}</span>`;
  return [
    NODE, HOST,
    numeric("free_vcpus", "CPUs left", left("VCPU")),
    numeric("free_memory_mb", "Memory left", left("MEMORY_MB")),
    numeric("free_disk_gb", "Disk left", left("DISK_GB")),
  ];
}

const excludedNodes = ({ total_nodes: total, checks, nearest }) => html`<${Section} title="What excludes the others">
  ${checks.length === 0
    ? quiet(total === 0 ? "The fleet has no node." : "Nothing: every node fits.")
    : list(checks.map(({ check, nodes, is_lower_bound: isLower }) =>
      `${isLower ? "at least " : ""}${number(nodes)} of ${plural(total, "node")} ${CHECKS[check] ?? check}`))}
  ${nearest && html`<p>The nearest is <${NodeLink} ...${nearest} /> of <bdi>${nearest.host}</bdi>:</p>${list(nearest.reasons)}`}
<//>`;

function Candidates({ wanted, traits }) {
  const resources = [...wanted].map(([name, value]) => `${name}:${value}`);
  const required = traits && `&required=${encodeURIComponent(traits)}`;
  const poll = usePoll(`/v1/candidates?limit=${LIMIT}&resources=${resources}${required}`, 0);
  return answer(poll, ({ candidates, excluded }) => html`<${Section} id="fit" title=${`${plural(candidates.length, "node")}${excluded ? "" : " or more"} would take it`}>
      ${candidates.length > 0 && html`<${Table} caption="Candidates, best first" rows=${candidates} columns=${columnsFor(wanted)} />`}
    <//>
    ${excluded && excludedNodes(excluded)}`, "Looking…");
}

export function Fit() {
  const { query } = useLocation();
  const amounts = FIELDS.map(({ name, resource, factor = 1 }) => [resource, Math.round(Number(query[name] ?? 0) * factor)]);
  const wanted = amounts.filter(([, value]) => value > 0);
  const traits = (query.traits ?? "").split(/[\s,]+/).filter(Boolean).join();
  return html`<${QueryForm} submit="Find nodes">
      ${FIELDS.map(({ name, title }) => html`<label>${title}
        <input type="number" name=${name} min="0" step="any" defaultValue=${query[name]} /></label>`)}
      <label class="grow">Traits <input name="traits" placeholder="HW_CPU_X86_AVX2, CUSTOM_…" defaultValue=${query.traits} /></label>
    <//>
    ${wanted.length > 0 && html`<${Candidates} wanted=${new Map(wanted)} traits=${traits} />`}`;
}
