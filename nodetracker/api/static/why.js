// Why a node's usage is what it is: its row, its claims and its hypervisor side by side.
import { useFollow } from "./follow.js";
import { amount, nameOf } from "./format.js";
import { html } from "./preact.js";
import { Table } from "./table.js";
import { WorkloadLink } from "./workloads.js";

// Return the causes of all resources by workload; that of the row first.
function groupCauses(diff) {
  const groups = new Map();
  for (const { resource, causes } of diff) {
    for (const cause of causes) {
      const key = cause.workload_uuid ?? "";
      groups.set(key, [...(groups.get(key) ?? []), { resource, ...cause }]);
    }
  }
  return [...groups.entries()].sort(([a], [b]) => (a === "" ? -1 : b === "" ? 1 : 0)).map(([, own]) => own);
}

const NOUNS = { VCPU: "CPUs", PCPU: "pinned CPUs", MEMORY_MB: "memory", DISK_GB: "disk" };

const list = (causes, valueOf, suffix = () => "") => causes
  .map((cause) => `${amount(cause.resource, valueOf(cause))} ${NOUNS[cause.resource]}${suffix(cause)}`)
  .join(", ");

function Cause({ causes }) {
  const [{ workload_uuid: uuid, name, hypervisor }] = causes;
  if (uuid === null) {
    const sum = list(causes, (cause) => Math.abs(cause.difference), (cause) => (cause.difference > 0 ? " more" : " less"));
    return html`The row uses ${sum} than claims and guests add up to; an audit corrects it.`;
  }
  const claimed = list(causes, ({ ledger }) => ledger);
  const why = hypervisor === null
    ? "and the hypervisor does not list it."
    : `but its guest has ${list(causes, (cause) => cause.hypervisor)}; the larger counts.`;
  return html`<${WorkloadLink} workload=${{ uuid, name }} /> has claimed ${claimed}, ${why}`;
}

const column = (id, title) => ({
  id, title, isFixed: true, isNumeric: true,
  cell: (line) => (line[id] === null ? "–" : amount(line.resource, line[id])),
});
const COLUMNS = [
  { id: "resource", title: "Resource", isFixed: true, value: ({ resource }) => nameOf(resource) },
  column("row_used", "Row"),
  column("ledger", "Claims and guests"),
  column("hypervisor", "Hypervisor"),
  column("difference", "Difference"),
];

// Render the comparison.
export function Why({ path, generation }) {
  const { data } = useFollow(`${path}/diff`, generation);
  if (!data) return null;
  const groups = groupCauses(data.diff);
  return html`<${Table} caption="Usage, reserved amounts included" columns=${COLUMNS} rows=${data.diff} keyOf=${({ resource }) => resource} />
    ${groups.length > 0
      ? html`<ul>${groups.map((causes) => html`<li><${Cause} causes=${causes} /></li>`)}</ul>`
      : html`<p class="good"><span aria-hidden="true">✔</span> Row, claims and hypervisor agree.</p>`}`;
}
