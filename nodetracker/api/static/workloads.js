// Tables of workloads, and links to them.
import { amount, number } from "./format.js";
import { Name } from "./name.js";
import { html } from "./preact.js";
import { hrefOf } from "./router.js";
import { Table } from "./table.js";

// Render a workload's name, or its uuid, as a link to where it is.
export const WorkloadLink = ({ workload: { uuid, name } }) =>
  html`<a href=${hrefOf("/search", { text: uuid })}><${Name} text=${name || uuid} /></a>`;

// Return shared and pinned CPUs as text.
export const cpusOf = ({ vcpus, pcpus }) =>
  [(vcpus > 0 || pcpus === 0) && number(vcpus), pcpus > 0 && `${pcpus} pinned`].filter(Boolean).join(" + ");

const NODE = {
  id: "node", title: "Node", value: ({ nodename }) => nodename,
  cell: ({ node_uuid, nodename }) => html`<a href=${hrefOf(`/nodes/${node_uuid}`)}><${Name} text=${nodename} /></a>`,
};
const COLUMNS = [
  { id: "name", title: "Workload", value: ({ name, uuid }) => name || uuid,
    cell: (workload) => html`<${WorkloadLink} workload=${workload} />` },
  { id: "kind", title: "Kind", value: ({ kind }) => kind },
  { id: "power", title: "Power", value: ({ power_state }) => power_state ?? "not listed" },
  { id: "claim", title: "Claim", value: ({ claim_state }) => claim_state ?? "unclaimed" },
  { id: "project", title: "Project", value: ({ project_id }) => project_id,
    cell: ({ project_id }) => project_id && html`<a href=${hrefOf("/search", { text: project_id })}><${Name} text=${project_id} /></a>` },
  { id: "cpus", title: "CPUs", isNumeric: true, value: ({ vcpus, pcpus }) => vcpus + pcpus,
    cell: cpusOf },
  { id: "memory", title: "Memory", isNumeric: true, value: ({ memory_mb }) => memory_mb,
    cell: ({ memory_mb }) => amount("MEMORY_MB", memory_mb) },
  { id: "disk", title: "Disk", isNumeric: true, value: ({ disk_gb }) => disk_gb,
    cell: ({ disk_gb }) => amount("DISK_GB", disk_gb) },
];
const WITH_NODE = [COLUMNS[0], NODE, ...COLUMNS.slice(1)];

const keyOf = ({ uuid, node_uuid, claim_uuid }) => `${uuid} ${node_uuid} ${claim_uuid}`;

// Render workloads, with their nodes unless all are on the same.
export const Workloads = ({ workloads, hasNodes, empty }) => html`<${Table} caption="Workloads" rows=${workloads}
  columns=${hasNodes ? WITH_NODE : COLUMNS} keyOf=${keyOf} sort="name" empty=${empty} />`;
