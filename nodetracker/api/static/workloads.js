// Workloads: tables, links, the claims of a node with their timeline, one by its uuid, and the sum of a project.
import { age, amount, bdi, column, disk, fixed, html, join, link, memory, NODE, number, numeric, plural, quiet, resourceOf, section, serverNow, Table, time, useList, useMemo, usePoll, useSubject } from "./page.js";

export const isUuid = (text) => UUID.test(text);
const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;

// A workload's name, or its uuid, as a link to where it is.
export const workloadLink = ({ uuid, name }) => link("/workloads", bdi(name || uuid), { text: uuid });

// The columns of workloads and claims.
export const NAME = column("name", "Workload", (_, row) => workloadLink(row), ({ name, uuid }) => name || uuid);
export const AMOUNTS = [
  numeric("cpus", "CPUs", (_, { vcpus, pcpus }) =>
    join([(vcpus > 0 || pcpus === 0) && number(vcpus), pcpus > 0 && `${pcpus} pinned`], " + "), ({ vcpus, pcpus }) => vcpus + pcpus),
  numeric("memory_mb", "Memory", memory),
  numeric("disk_gb", "Disk", disk),
];
export const RESOURCE = column("resource", "Resource", (resource) => resourceOf(resource).name);
export const amountColumn = (id, title) => numeric(id, title, (value, { resource }) => (value === null ? "–" : amount(resource, value)));
const COLUMNS = [
  column("kind", "Kind"),
  column("power_state", "Power", (state) => bdi(state ?? "not listed")),
  column("claim_state", "Claim", (state) => bdi(state ?? "unclaimed")),
  column("project_id", "Project", (project) => project && link("/workloads", bdi(project), { project })),
  ...AMOUNTS,
];
const HERE = [NAME, ...COLUMNS];
const SORT_KEYS = { name: "name", project_id: "project_id", cpus: "vcpus", memory_mb: "memory_mb", disk_gb: "disk_gb" };
export const EVERYWHERE = [NAME, NODE, ...COLUMNS].map((each) => ({ ...each, sortKey: SORT_KEYS[each.id] }));

export const keyOf = ({ uuid, node_uuid, claim_uuid }) => `${uuid} ${node_uuid} ${claim_uuid}`;

// Render workloads, with their nodes unless all are on the same.
export const Workloads = ({ workloads = [], isHere, empty }) => html`<${Table} caption="Workloads" rows=${workloads}
  columns=${isHere ? HERE : EVERYWHERE} keyOf=${keyOf} sort="name" empty=${empty} />`;

const sumUp = ({ workloads, vcpus, pcpus, memory_mb, disk_gb }) =>
  join([plural(workloads, "workload"), `${number(vcpus + pcpus)} CPUs`, `${memory(memory_mb)} of memory`, `${disk(disk_gb)} of disk`]);

// What a project uses, if there is one of this id; with a link to its workloads, unless they are what is shown.
export function ProjectSum({ project, isChosen }) {
  const [usage] = useList("usages", { project }, 0).data?.usages ?? [];
  return usage && html`<p>Project ${isChosen ? bdi(project) : link("/workloads", bdi(project), { project })}: ${sumUp(usage)}</p>`;
}

export function Workload({ uuid }) {
  const { data, error } = usePoll(`/v1/workloads/${uuid}`, 0);
  useSubject(data?.name);
  if (!data) return quiet(error ? error.detail : "Searching…");
  const { places, ...workload } = data;
  const { name, kind, project_id: project } = workload;
  return section(bdi(name || uuid), html`
    ${quiet(html`${kind} <code>${uuid}</code>${project && html` of project <bdi>${project}</bdi>`}, on ${plural(places.length, "node")}`)}
    <${Workloads} workloads=${places.map((place) => ({ ...workload, ...place }))} />`, "found");
}

const RELEASED = 50; // claims that are shown beside the active ones
const WIDTH = 1000;
const HOUR = 3_600_000;

// Return the active claims of a node and some released ones, newest first, with uuid and name of their workloads.
export function useClaims(usePart) {
  const active = usePart("claims?sort_dir=desc&state=held&state=confirmed");
  const released = usePart(`claims?sort_dir=desc&state=released&limit=${RELEASED}`);
  return useMemo(
    () => [...(active?.claims ?? []), ...(released?.claims ?? [])]
      .map((claim) => ({ ...claim, id: claim.uuid, uuid: claim.workload_uuid, name: claim.workload_name || claim.workload_uuid }))
      .sort((a, b) => b.created_at.localeCompare(a.created_at)),
    [active, released],
  );
}

// Return the period that is shown: the newer half of the claims, at least an hour, and until held ones expire.
function periodOf(claims, now) {
  const times = (ofClaim) => claims.map(ofClaim).filter(Boolean).map(Date.parse);
  const first = times(({ created_at }) => created_at)[claims.length >> 1] ?? now;
  const last = Math.max(now, ...times(({ expires_at }) => expires_at));
  return [Math.min(now - HOUR, first), last + (last - now) / 20];
}

// The bar of a claim: held hatched, confirmed full, released open-ended.
function span({ state, created_at, updated_at, expires_at }, [first, last], now) {
  const place = (at) => ((at - first) / (last - first)) * WIDTH;
  const x = Math.max(0, place(Date.parse(created_at)));
  const right = Math.max(x + 4, place(state === "released" ? Date.parse(updated_at) : now));
  const draw = (d, name) => html`<path class=${name} d=${d} />`;
  return html`<svg class=${`span span-${state}`} viewBox=${`0 0 ${WIDTH} 20`} preserveAspectRatio="none" aria-hidden="true">
    ${draw(`M${right} 4H${x}V16H${right}${state === "released" ? "" : "Z"}`)}
    ${state === "held" && draw(`M${x} 10H${right}`, "hatch")}
    ${state === "held" && expires_at && draw(`M${place(Date.parse(expires_at))} 0V20`, "expiry")}
  </svg>`;
}

function stateOf({ state, reason, expires_at }, now) {
  if (state === "released") return `released: ${reason}`;
  if (state !== "held" || !expires_at) return state;
  const left = (Date.parse(expires_at) - now) / 1000;
  return left > 0 ? `held, expires in ${age(left)}` : "held, expired";
}

// Render claims, each with a button, if any.
export function Claims({ claims, actionOf }) {
  const now = serverNow();
  const period = periodOf(claims, now);
  const columns = [
    NAME,
    column("state", "State", (_, claim) => `${stateOf(claim, now)}${claim.kind === "move" ? ", move" : ""}`),
    column("created_at", "Since", time),
    column("span", `${time(period[0])} to ${period[1] > now ? time(period[1]) : "now"}`, (_, claim) => span(claim, period, now)),
    ...AMOUNTS,
    ...(actionOf ? [column("action", "Action", (_, claim) => actionOf(claim))] : []),
  ];
  return html`<div class="claims">${fixed("Claims, newest first", columns, claims, { empty: "No claim yet." })}</div>`;
}
