// Where would it fit: nodes for a workload with what they have left, and what excludes the others.
import { amount } from "./amounts.js";
import { useList } from "./api.js";
import { plural } from "./format.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { HOST, NODE, numeric, Table } from "./table.js";
import { answer, list, nodeLink, QueryForm, quiet, section } from "./widgets.js";

const FIELDS = [ // name in the address, title, resource, and its units in that of the field
  ["cpus", "CPUs", "VCPU", 1],
  ["memory", "Memory (GiB)", "MEMORY_MB", 1024],
  ["disk", "Disk (GiB)", "DISK_GB", 1],
];
const LIMIT = 100;

function columnsFor(wanted) {
  const left = (id, title, resource) => numeric(id, title, (free) =>
    html`<span>${amount(resource, free)} <span class="quiet">→ ${amount(resource, free - (wanted[resource] ?? 0))}</span></span>`);
  return [
    NODE, HOST,
    left("free_vcpus", "CPUs left", "VCPU"),
    left("free_memory_mb", "Memory left", "MEMORY_MB"),
    left("free_disk_gb", "Disk left", "DISK_GB"),
  ];
}

const excludedNodes = ({ total_nodes: total, checks, nearest }) => section("What excludes the others", html`
  ${checks.length > 0 ? list(checks.map(({ text }) => text)) : quiet(total ? "Nothing: every node fits." : "The fleet has no node.")}
  ${nearest && html`<p>The nearest is ${nodeLink(nearest)} of <bdi>${nearest.host}</bdi>:</p>${list(nearest.reasons)}`}`);

function Candidates({ wanted, traits }) {
  const resources = Object.entries(wanted).map(([name, value]) => `${name}:${value}`);
  return answer(useList("candidates", { limit: LIMIT, resources, ...(traits && { required: traits }) }, 0), ({ candidates, excluded }) => html`
    ${section(`${plural(candidates.length, "node")}${excluded ? "" : " or more"} would take it`, candidates.length > 0
      && html`<${Table} caption="Candidates, best first" rows=${candidates} columns=${columnsFor(wanted)} />`, "fit")}
    ${excluded && excludedNodes(excluded)}`, "Looking…");
}

export function Fit() {
  const { query } = useLocation();
  const amounts = FIELDS.map(([name, , resource, factor]) => [resource, Math.ceil(Number(query[name] ?? 0) * factor)]);
  const wanted = amounts.filter(([, value]) => value > 0);
  const traits = (query.traits ?? "").split(/[\s,]+/).filter(Boolean).join();
  return html`<${QueryForm} submit="Find nodes">
      ${FIELDS.map(([name, title]) => html`<label>${title}
        <input type="number" name=${name} min="0" step="any" defaultValue=${query[name]} /></label>`)}
      <label class="grow">Traits <input name="traits" placeholder="HW_CPU_X86_AVX2, CUSTOM_…" defaultValue=${query.traits} /></label>
    <//>
    ${wanted.length > 0 && html`<${Candidates} wanted=${Object.fromEntries(wanted)} traits=${traits} />`}`;
}
