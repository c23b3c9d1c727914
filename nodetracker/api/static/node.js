// A node: its state and amounts, why they are so, what it has and what is on it.
import { abortOf, Ask, listActions } from "./actions.js";
import { totals } from "./amounts.js";
import { nextOf, request, useAbout, usePoll } from "./api.js";
import { Claims, useClaims } from "./claims.js";
import { gpuList, pciTree } from "./devices.js";
import { diffList } from "./diff.js";
import { amount, join, number, plural, RESOURCES, time } from "./format.js";
import { NumaMap } from "./numa.js";
import { html, useEffect, useMemo, useState } from "./preact.js";
import { column, numeric, Table } from "./table.js";
import { ageOf, ago, answer, button, folded, list, mark, quiet, Section, states } from "./widgets.js";
import { workloadLink, Workloads } from "./workloads.js";

const versionOf = (version) => [1e6, 1e3, 1].map((unit) => Math.floor(version / unit) % 1000).join(".");

function summary(node, service) {
  const { cpu_info: cpu, system, disabled_reason: reason = "" } = node;
  const { cells, sockets, cores, threads } = cpu.topology ?? {};
  const topology = cells && join([
    cells > 1 && `${cells} cells`, plural(sockets, "socket"), plural(cores, "core"), plural(threads, "thread"),
  ], " × ");
  const disabler = reason?.startsWith("AUTO: ") ? "its agent" : node.disabled_by ?? "an administrator";
  const lines = {
    Disabled: node.status === "disabled" && html`${node.disabled_at && ago(node.disabled_at)} by <bdi>${disabler}</bdi>: <bdi>${reason?.replace("AUTO: ", "") || "no reason given"}</bdi>`,
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
  return found.length > 0 && html`<${Section} title="Warnings">${list(found.map(({ kind, message, first_seen, nodename }) => html`
    ${mark(kind.replaceAll("_", " "), "warning")} <bdi>${message}</bdi>${" "}
    <span class="quiet">${!nodename && "whole host, "}since ${ago(first_seen)}</span>`), "plain")}<//>`;
}

const LEVELS = { fresh: "good", held: "warning", unknown: "bad" };
const FACT_COLUMNS = [
  column("name", "Fact"),
  column("state", "State", (state) => mark(state, LEVELS[state])),
  column("since", "Since", ago),
  column("source", "Source"),
  column("error", "Error"),
];

const listCauses = (causes, show) => causes.map((cause) => show(cause, RESOURCES[cause.resource].noun)).join(", ");
const listAmounts = (causes, key) => listCauses(causes, (cause, noun) => `${amount(cause.resource, cause[key])} ${noun}`);

function explain(causes) {
  const [{ workload_uuid: uuid, name, hypervisor }] = causes;
  if (!uuid) {
    const sum = listCauses(causes, ({ resource, difference }, noun) =>
      `${amount(resource, Math.abs(difference))} ${noun} ${difference > 0 ? "more" : "less"}`);
    return html`The row uses ${sum} than claims and guests add up to; an audit corrects it.`;
  }
  const why = hypervisor === null
    ? "and the hypervisor does not list it."
    : `but its guest has ${listAmounts(causes, "hypervisor")}; the larger counts.`;
  return html`${workloadLink({ uuid, name })} has claimed ${listAmounts(causes, "ledger")}, ${why}`;
}

const used = (id, title) => numeric(id, title, (value, { resource }) => (value === null ? "–" : amount(resource, value)));
const WHY_COLUMNS = [
  column("resource", "Resource", (resource) => RESOURCES[resource]?.name ?? resource),
  used("row_used", "Row"),
  used("ledger", "Claims and guests"),
  used("hypervisor", "Hypervisor"),
  used("difference", "Difference"),
];

// Render why the usage is what it is: row, claims and hypervisor side by side.
function Why({ path, generation }) {
  const { data } = usePoll(`${path}/diff`, generation);
  if (!data) return null;
  const all = data.diff.flatMap(({ resource, causes }) => causes.map((cause) => ({ resource, ...cause })));
  const groups = [...Map.groupBy(all, (cause) => cause.workload_uuid ?? "")].sort(([a], [b]) => Boolean(a) - Boolean(b));
  return html`<${Table} isFixed caption="Usage, reserved amounts included" columns=${WHY_COLUMNS} rows=${data.diff} />
    ${groups.length > 0
      ? list(groups.map(([, causes]) => explain(causes)))
      : html`<p>${mark("Row, claims and hypervisor agree.", "good")}</p>`}`;
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
      <h3>${time(at)} <span class="quiet">${what}, ${ago(at)}</span></h3>${diffList(diff)}
    </li>`)}</ol>
    ${entries.length === 0 && quiet("No change.")}
    ${next && button("Older", more)}`;
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
  const ownerOf = (uuid) => workloadLink(byOwner.get(uuid) ?? { uuid });
  const ownerOfClaim = (claim) => workloadLink({ uuid: claim.workload_uuid, name: nameOf(claim) });
  const ask = (action, text = action.title, label = text) => button(text, () => setAsked(action), { key: label, "aria-label": label });
  const abort = (claim) => abortOf(about, claim, nameOf(claim));
  const abortButton = (claim) => abort(claim) && ask(abort(claim), "Abort", `Abort the claim of ${nameOf(claim)}`);
  return html`
    <div class="title"><h1><bdi>${node.hypervisor_hostname}</bdi></h1>
      <p>${states({ ...node, freshness: line?.freshness })}</p>
      <p class="actions">${listActions(about, node, service).map((action) => ask(action))}</p>
    </div>
    <p class="quiet">Host <bdi>${node.host}</bdi>, <code>${node.uuid}</code></p>
    ${asked && html`<${Ask} action=${asked} node=${node} onClose=${() => setAsked(null)} />`}
    ${summary(node, service)}
    ${line && html`<${Section} title="Resources">${totals(line.amounts)}<//>`}
    <${Warnings} node=${node} />
    <${Section} title="Why"><${Why} path=${path} generation=${generation} /><//>
    <${Section} title="NUMA"><${NumaMap} node=${node} workloads=${workloads} /><//>
    ${gpus.length > 0 && html`<${Section} title="GPUs">${gpuList(gpus, devices, ownerOf)}<//>`}
    ${devices.length > 0 && html`<${Section} title="PCI devices">${pciTree(devices, ownerOf)}<//>`}
    <${Section} title="Workloads"><${Workloads} workloads=${workloads} isHere empty="Nothing is on this node." /><//>
    <${Section} title="Claims"><${Claims} claims=${claims} ownerOf=${ownerOfClaim} actionOf=${claims.some(abort) && abortButton} /><//>
    <${Section} title="Facts"><${Table} isFixed caption="Facts" columns=${FACT_COLUMNS} empty="Nothing was read yet."
      rows=${Object.entries(node.facts).map(([name, fact]) => ({ name, ...fact }))} /><//>
    <${Section} title="History"><${History} path=${path} generation=${generation} /><//>
    <${Section} title="Row">${folded(`All columns, generation ${number(generation)}`,
      html`<pre tabindex="0">${JSON.stringify(node, null, 2)}</pre>`)}<//>`;
}

export function NodePage({ uuid }) {
  const path = `/v1/nodes/${encodeURIComponent(uuid)}`;
  return answer(usePoll(path), (node) => html`<${Node} node=${node} path=${path} />`);
}
