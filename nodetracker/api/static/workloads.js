// Workloads: tables, links, and the search for one by its uuid or a part of its name, or of a project.
import { disk, memory } from "./amounts.js";
import { useList, usePoll } from "./api.js";
import { join, number, plural } from "./format.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { column, NODE, numeric, Table } from "./table.js";
import { bdi, link, QueryForm, quiet, section } from "./widgets.js";

const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;

const searchLink = (text, name = text) => link("/search", bdi(name), { text });

// A workload's name, or its uuid, as a link to where it is.
export const workloadLink = ({ uuid, name }) => searchLink(uuid, name || uuid);

// The columns of workloads and claims.
export const NAME = column("name", "Workload", (_, row) => workloadLink(row), ({ name, uuid }) => name || uuid);
export const AMOUNTS = [
  numeric("cpus", "CPUs", (_, { vcpus, pcpus }) =>
    join([(vcpus > 0 || pcpus === 0) && number(vcpus), pcpus > 0 && `${pcpus} pinned`], " + "), ({ vcpus, pcpus }) => vcpus + pcpus),
  numeric("memory_mb", "Memory", memory),
  numeric("disk_gb", "Disk", disk),
];
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

const sumUp = ({ workloads, vcpus, pcpus, memory_mb, disk_gb }) =>
  join([plural(workloads, "workload"), `${number(vcpus + pcpus)} CPUs`, `${memory(memory_mb)} of memory`, `${disk(disk_gb)} of disk`]);

function Found({ text }) {
  const named = useList("workloads", { name_part: text }, 0).data;
  const owned = useList("workloads", { project: text }, 0).data;
  const used = useList("usages", { project: text }, 0).data;
  const usage = used?.usages[0];
  const empty = named && used ? "No workload has such a name, and no project this id." : "Searching…";
  return html`
    ${usage && section(html`Project <bdi>${text}</bdi>`, html`<p>${sumUp(usage)}</p><${Workloads} workloads=${owned?.workloads} />`, "project")}
    ${(!usage || named?.workloads.length > 0) && section(html`Names with <bdi>${text}</bdi>`,
      html`<${Workloads} workloads=${named?.workloads} empty=${empty} />`, "named")}`;
}

function Workload({ uuid }) {
  const { data, error } = usePoll(`/v1/workloads/${uuid}`, 0);
  if (!data) return quiet(error ? error.detail : "Searching…");
  const { places, ...workload } = data;
  const { name, kind, project_id: project } = workload;
  return section(bdi(name || uuid), html`
    ${quiet(html`${kind} <code>${uuid}</code>${project && html` of project <bdi>${project}</bdi>`}, on ${plural(places.length, "node")}`)}
    <${Workloads} workloads=${places.map((place) => ({ ...workload, ...place }))} />`, "found");
}

export function Search() {
  const text = useLocation().query.text?.trim();
  return html`<${QueryForm} role="search" submit="Search"><label class="grow">Workload or project
      <input type="search" name="text" placeholder="UUID, part of a name, or project" key=${text} defaultValue=${text} />
    </label><//>
    ${text && (UUID.test(text) ? html`<${Workload} key=${text} uuid=${text} />` : html`<${Found} key=${text} text=${text} />`)}`;
}
