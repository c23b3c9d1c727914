// Workloads: tables, links, and the search for one by its uuid or a part of its name, or of a project.
import { usePoll } from "./api.js";
import { disk, join, memory, number, plural } from "./format.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { column, NODE, numeric, Table } from "./table.js";
import { bdi, link, QueryForm, quiet, Section } from "./widgets.js";

const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;

const searchLink = (text, name = text) => link("/search", bdi(name), { text });

// A workload's name, or its uuid, as a link to where it is.
export const workloadLink = ({ uuid, name }) => searchLink(uuid, name || uuid);

// The columns of amounts of workloads and claims.
export const AMOUNTS = [
  numeric("cpus", "CPUs", (_, { vcpus, pcpus }) =>
    join([(vcpus > 0 || pcpus === 0) && number(vcpus), pcpus > 0 && `${pcpus} pinned`], " + "), ({ vcpus, pcpus }) => vcpus + pcpus),
  numeric("memory_mb", "Memory", memory),
  numeric("disk_gb", "Disk", disk),
];
const NAME = column("name", "Workload", (_, row) => workloadLink(row), ({ name, uuid }) => name || uuid);
const COLUMNS = [
  column("kind", "Kind"),
  column("power_state", "Power", (state) => state ?? "not listed"),
  column("claim_state", "Claim", (state) => state ?? "unclaimed"),
  column("project_id", "Project", (project) => project && searchLink(project)),
  ...AMOUNTS,
];
const HERE = [NAME, ...COLUMNS];
const EVERYWHERE = [NAME, NODE, ...COLUMNS];

const keyOf = ({ uuid, node_uuid, claim_uuid }) => `${uuid} ${node_uuid} ${claim_uuid}`;

// Render workloads, with their nodes unless all are on the same.
export const Workloads = ({ workloads = [], isHere, empty }) => html`<${Table} caption="Workloads" rows=${workloads}
  columns=${isHere ? HERE : EVERYWHERE} keyOf=${keyOf} sort="name" empty=${empty} />`;

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
  if (!data) return quiet(error ? error.detail : "Searching…");
  const { places, ...workload } = data;
  return html`<${Section} id="found" title=${html`<bdi>${data.name || uuid}</bdi>`}>
    ${quiet(html`${data.kind} <code>${uuid}</code>${data.project_id && html` of project <bdi>${data.project_id}</bdi>`}, on ${plural(places.length, "node")}`)}
    <${Workloads} workloads=${places.map((place) => ({ ...workload, ...place }))} /><//>`;
}

export function Search() {
  const text = useLocation().query.text?.trim();
  return html`<${QueryForm} role="search" submit="Search"><label class="grow">Workload or project
      <input type="search" name="text" placeholder="UUID, part of a name, or project" key=${text} defaultValue=${text} />
    </label><//>
    ${text && (UUID.test(text) ? html`<${Workload} key=${text} uuid=${text} />` : html`<${Found} key=${text} text=${text} />`)}`;
}
