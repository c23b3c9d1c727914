// A node: its state and amounts, why they are so, what it has and what is on it.
import { abortOf, Ask, listActions } from "./actions.js";
import { Totals } from "./amounts.js";
import { nextOf, request, useAbout, usePoll } from "./api.js";
import { Claims, useClaims } from "./claims.js";
import { Gpus, PciTree } from "./devices.js";
import { DiffList } from "./diff.js";
import { amount, join, number, plural, RESOURCES, time } from "./format.js";
import { NumaMap } from "./numa.js";
import { html, useEffect, useMemo, useState } from "./preact.js";
import { ago, Table } from "./table.js";
import { ageOf, Ago, Answer, Mark, Section, State } from "./widgets.js";
import { WorkloadLink, Workloads } from "./workloads.js";

const versionOf = (version) => [1e6, 1e3, 1].map((unit) => Math.floor(version / unit) % 1000).join(".");

function Summary({ node, service }) {
  const { cpu_info: cpu, system, disabled_reason: reason = "" } = node;
  const { cells, sockets, cores, threads } = cpu.topology ?? {};
  const topology = cells && join([
    cells > 1 && `${cells} cells`, plural(sockets, "socket"), plural(cores, "core"), plural(threads, "thread"),
  ], " × ");
  const disabler = reason?.startsWith("AUTO: ") ? "its agent" : "an administrator";
  const lines = {
    Disabled: node.status === "disabled" && html`by ${disabler}: <bdi>${reason?.replace("AUTO: ", "") || "no reason given"}</bdi>`,
    Down: service?.forced_down && "forced by an administrator",
    Read: ago(node.read_at),
    Heartbeat: ago(node.last_seen_up),
    Uptime: node.booted_at && `${ageOf(node.booted_at)}, since ${time(node.booted_at)}`,
    CPU: join([cpu.model || node.architecture, topology]),
    System: join([node.os, node.kernel_version]),
    Hypervisor: join([node.hypervisor_type, node.hypervisor_version && versionOf(node.hypervisor_version)], " "),
    Machine: join([system.vendor, system.product, system.serial], " "),
    Address: node.host_ip,
    Runs: join([plural(node.running_vms, "instance"), plural(node.total_containers, "container")]),
  };
  return html`<dl class="summary">${Object.entries(lines).map(([name, text]) => text && html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>`;
}

function Warnings({ node }) {
  const { data } = usePoll(`/v1/warnings?host=${encodeURIComponent(node.host)}`);
  const found = data?.warnings.filter(({ nodename }) => !nodename || nodename === node.hypervisor_hostname) ?? [];
  return found.length > 0 && html`<${Section} title="Warnings"><ul class="plain">
    ${found.map(({ id, kind, message, first_seen, nodename }) => html`<li key=${id}>
      <${Mark} word=${kind.replaceAll("_", " ")} level="warning" />
      <bdi>${message}</bdi> <span class="quiet">${!nodename && "whole host, "}since <${Ago} at=${first_seen} /></span>
    </li>`)}
  </ul><//>`;
}

const LEVELS = { fresh: "good", held: "warning", unknown: "bad" };
const FACT_COLUMNS = [
  { id: "name", title: "Fact" },
  { id: "state", title: "State", cell: (state) => html`<${Mark} word=${state} level=${LEVELS[state]} />` },
  { id: "since", title: "Since", cell: ago },
  { id: "source", title: "Source" },
  { id: "error", title: "Error" },
];

const listCauses = (causes, show) => causes.map((cause) => show(cause, RESOURCES[cause.resource].noun)).join(", ");
const listAmounts = (causes, key) => listCauses(causes, (cause, noun) => `${amount(cause.resource, cause[key])} ${noun}`);

// Render the causes of one workload, or of the row.
function Cause({ causes }) {
  const [{ workload_uuid: uuid, name, hypervisor }] = causes;
  if (!uuid) {
    const sum = listCauses(causes, ({ resource, difference }, noun) =>
      `${amount(resource, Math.abs(difference))} ${noun} ${difference > 0 ? "more" : "less"}`);
    return html`The row uses ${sum} than claims and guests add up to; an audit corrects it.`;
  }
  const why = hypervisor === null
    ? "and the hypervisor does not list it."
    : `but its guest has ${listAmounts(causes, "hypervisor")}; the larger counts.`;
  return html`<${WorkloadLink} uuid=${uuid} name=${name} /> has claimed ${listAmounts(causes, "ledger")}, ${why}`;
}

const column = (id, title) => ({
  id, title, isNumeric: true, cell: (value, { resource }) => (value === null ? "–" : amount(resource, value)),
});
const WHY_COLUMNS = [
  { id: "resource", title: "Resource", cell: (resource) => RESOURCES[resource]?.name ?? resource },
  column("row_used", "Row"),
  column("ledger", "Claims and guests"),
  column("hypervisor", "Hypervisor"),
  column("difference", "Difference"),
];

// Render why the usage is what it is: row, claims and hypervisor side by side.
function Why({ path, generation }) {
  const { data } = usePoll(`${path}/diff`, generation);
  if (!data) return null;
  const all = data.diff.flatMap(({ resource, causes }) => causes.map((cause) => ({ resource, ...cause })));
  const groups = [...Map.groupBy(all, (cause) => cause.workload_uuid ?? "")].sort(([a], [b]) => Boolean(a) - Boolean(b));
  return html`<${Table} isFixed caption="Usage, reserved amounts included" columns=${WHY_COLUMNS} rows=${data.diff} />
    ${groups.length > 0
      ? html`<ul>${groups.map(([, causes]) => html`<li><${Cause} causes=${causes} /></li>`)}</ul>`
      : html`<p><${Mark} word="Row, claims and hypervisor agree." level="good" /></p>`}`;
}

function History({ path, generation }) {
  const { data } = usePoll(`${path}/history?limit=10`, generation);
  const [older, setOlder] = useState([]);
  const [next, setNext] = useState(null);
  useEffect(() => {
    setOlder([]);
    setNext(nextOf(data));
  }, [data]);
  const more = async () => {
    const answer = await request(next);
    if (!answer.data) return;
    setOlder([...older, ...answer.data.history]);
    setNext(nextOf(answer.data));
  };
  if (!data) return null;
  const entries = [...data.history, ...older];
  return html`<ol class="plain history">${entries.map(({ id, at, what, diff }) => html`<li key=${id}>
      <h3>${time(at)} <span class="quiet">${what}, <${Ago} at=${at} /></span></h3><${DiffList} diff=${diff} />
    </li>`)}</ol>
    ${entries.length === 0 && html`<p class="quiet">No change.</p>`}
    ${next && html`<button type="button" onClick=${more}>Older</button>`}`;
}

function Node({ node, path }) {
  const about = useAbout();
  const [asked, setAsked] = useState(null);
  const line = usePoll("/v1/overview").data?.nodes.find(({ uuid }) => uuid === node.uuid);
  const service = usePoll(`/v1/services?binary=nodetracker-compute&host=${encodeURIComponent(node.host)}`).data?.services[0];
  const { generation, gpus } = node;
  const workloads = usePoll(`${path}/workloads`, generation).data?.workloads;
  const devices = usePoll(`${path}/devices`, generation).data?.devices ?? [];
  const claims = useClaims(path, generation);
  const byOwner = useMemo(() => new Map(workloads?.flatMap((each) => [[each.uuid, each], [each.claim_uuid, each]])), [workloads]);
  const nameOf = useMemo(() => (claim) => byOwner.get(claim.uuid)?.name || claim.workload_name || claim.workload_uuid, [byOwner]);
  const ownerOf = (uuid) => html`<${WorkloadLink} ...${byOwner.get(uuid) ?? { uuid }} />`;
  const ownerOfClaim = (claim) => html`<${WorkloadLink} uuid=${claim.workload_uuid} name=${nameOf(claim)} />`;
  const button = (action, text = action.title, label = text) =>
    html`<button type="button" key=${label} aria-label=${label} onClick=${() => setAsked(action)}>${text}</button>`;
  const abort = (claim) => abortOf(about, claim, nameOf(claim));
  const abortButton = (claim) => abort(claim) && button(abort(claim), "Abort", `Abort the claim of ${nameOf(claim)}`);
  return html`
    <div class="title"><h1><bdi>${node.hypervisor_hostname}</bdi></h1>
      <p><${State} of=${{ ...node, freshness: line?.freshness }} /></p>
      <p class="actions">${listActions(about, node, service).map((action) => button(action))}</p>
    </div>
    <p class="quiet">Host <bdi>${node.host}</bdi>, <code>${node.uuid}</code></p>
    ${asked && html`<${Ask} action=${asked} node=${node} onClose=${() => setAsked(null)} />`}
    <${Summary} node=${node} service=${service} />
    ${line && html`<${Section} title="Resources"><${Totals} amounts=${line.amounts} /><//>`}
    <${Warnings} node=${node} />
    <${Section} title="Why"><${Why} path=${path} generation=${generation} /><//>
    <${Section} title="NUMA"><${NumaMap} node=${node} claims=${claims} nameOf=${nameOf} /><//>
    ${gpus.length > 0 && html`<${Section} title="GPUs"><${Gpus} gpus=${gpus} devices=${devices} ownerOf=${ownerOf} /><//>`}
    ${devices.length > 0 && html`<${Section} title="PCI devices"><${PciTree} devices=${devices} ownerOf=${ownerOf} /><//>`}
    <${Section} title="Workloads"><${Workloads} workloads=${workloads} isHere empty="Nothing is on this node." /><//>
    <${Section} title="Claims"><${Claims} claims=${claims} ownerOf=${ownerOfClaim} actionOf=${claims.some(abort) && abortButton} /><//>
    <${Section} title="Facts"><${Table} isFixed caption="Facts" columns=${FACT_COLUMNS} empty="Nothing was read yet."
      rows=${Object.entries(node.facts).map(([name, fact]) => ({ name, ...fact }))} /><//>
    <${Section} title="History"><${History} path=${path} generation=${generation} /><//>
    <${Section} title="Row"><details><summary>All columns, generation ${number(generation)}</summary>
      <pre tabindex="0">${JSON.stringify(node, null, 2)}</pre></details><//>`;
}

// Render the view.
export function NodePage({ uuid }) {
  const path = `/v1/nodes/${encodeURIComponent(uuid)}`;
  return html`<${Answer} poll=${usePoll(path)}>${(node) => html`<${Node} node=${node} path=${path} />`}<//>`;
}
