// Workloads: tables, links, and the search for one by its uuid or a part of its name, or of a project.
import { usePoll } from "./api.js";
import { disk, join, memory, number, plural } from "./format.js";
import { html } from "./preact.js";
import { hrefOf, useLocation } from "./router.js";
import { NODE, Table } from "./table.js";
import { Name, QueryForm, Section } from "./widgets.js";

const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;

// Render a link to the search for a text.
const searchLink = (text, name = text) => html`<a href=${hrefOf("/search", { text })}><${Name} text=${name} /></a>`;

// Render a workload's name, or its uuid, as a link to where it is.
export const WorkloadLink = ({ uuid, name }) => searchLink(uuid, name || uuid);

// The columns of amounts of workloads and claims.
export const AMOUNTS = [
  { id: "cpus", title: "CPUs", isNumeric: true, value: ({ vcpus, pcpus }) => vcpus + pcpus,
    cell: (_, { vcpus, pcpus }) => join([(vcpus > 0 || pcpus === 0) && number(vcpus), pcpus > 0 && `${pcpus} pinned`], " + ") },
  { id: "memory_mb", title: "Memory", isNumeric: true, cell: memory },
  { id: "disk_gb", title: "Disk", isNumeric: true, cell: disk },
];
const NAME = { id: "name", title: "Workload", value: ({ name, uuid }) => name || uuid, cell: (_, row) => html`<${WorkloadLink} ...${row} />` };
const COLUMNS = [
  { id: "kind", title: "Kind" },
  { id: "power", title: "Power", value: ({ power_state }) => power_state ?? "not listed" },
  { id: "claim", title: "Claim", value: ({ claim_state }) => claim_state ?? "unclaimed" },
  { id: "project_id", title: "Project", cell: (project) => project && searchLink(project) },
  ...AMOUNTS,
];
const HERE = [NAME, ...COLUMNS];
const EVERYWHERE = [NAME, NODE, ...COLUMNS];

const keyOf = ({ uuid, node_uuid, claim_uuid }) => `${uuid} ${node_uuid} ${claim_uuid}`;

// Render workloads, with their nodes unless all are on the same.
export const Workloads = ({ workloads = [], isHere, empty }) => html`<${Table} caption="Workloads" rows=${workloads}
  columns=${isHere ? HERE : EVERYWHERE} keyOf=${keyOf} sort="name" empty=${empty} />`;

// Return what is taken, as one sentence.
function sumUp(usages) {
  const sum = (name) => usages.reduce((total, usage) => total + usage[name], 0);
  const cpus = number(sum("vcpus") + sum("pcpus"));
  return join([plural(sum("workloads"), "workload"), `${cpus} CPUs`, memory(sum("memory_mb")), disk(sum("disk_gb"))]);
}

function Found({ text }) {
  const wanted = encodeURIComponent(text);
  const named = usePoll(`/v1/workloads?name_part=${wanted}`, 0).data;
  const owned = usePoll(`/v1/workloads?project=${wanted}`, 0).data;
  const used = usePoll(`/v1/usages?project=${wanted}`, 0).data;
  const isProject = used?.usages.length > 0;
  return html`
    ${isProject && html`<${Section} id="project" title=${html`Project <bdi>${text}</bdi>`}>
      <p>${sumUp(used.usages)}</p><${Workloads} workloads=${owned?.workloads} /><//>`}
    ${(!isProject || named?.workloads.length > 0) && html`<${Section} id="named" title=${html`Names with <bdi>${text}</bdi>`}>
      <${Workloads} workloads=${named?.workloads}
        empty=${named && used ? "No workload has such a name, and no project this id." : "Searching…"} /><//>`}`;
}

function Workload({ uuid }) {
  const { data, error } = usePoll(`/v1/workloads/${uuid}`, 0);
  if (!data) return html`<p class="quiet">${error ? error.detail : "Searching…"}</p>`;
  const { places, ...workload } = data;
  return html`<${Section} id="found" title=${html`<bdi>${data.name || uuid}</bdi>`}>
    <p class="quiet">${data.kind} <code>${uuid}</code>${data.project_id && html` of project <bdi>${data.project_id}</bdi>`}, on ${plural(places.length, "node")}</p>
    <${Workloads} workloads=${places.map((place) => ({ ...workload, ...place }))} /><//>`;
}

// Render the view.
export function Search() {
  const text = useLocation().query.text?.trim();
  return html`<${QueryForm} role="search" button="Search"><label class="grow">Workload or project
      <input type="search" name="text" placeholder="UUID, part of a name, or project" key=${text} defaultValue=${text} />
    </label><//>
    ${text && (UUID.test(text) ? html`<${Workload} key=${text} uuid=${text} />` : html`<${Found} key=${text} text=${text} />`)}`;
}
