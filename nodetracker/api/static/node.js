// A node: its state and amounts, why they are so, what it has and what is on it.
import { useAbout } from "./about.js";
import { abortOf, Ask, listActions } from "./actions.js";
import { Ago, serverNow } from "./ago.js";
import { Answer } from "./answer.js";
import { nextOf, request } from "./api.js";
import { ageColumn, textColumn } from "./columns.js";
import { Diff } from "./diff.js";
import { useFollow } from "./follow.js";
import { age, number, plural, time } from "./format.js";
import { NumaMap } from "./numa.js";
import { Gpus, PciTree } from "./pci.js";
import { usePoll } from "./poll.js";
import { html, useEffect, useMemo, useState } from "./preact.js";
import { Mark, State } from "./state.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { Totals } from "./totals.js";
import { Why } from "./why.js";
import { WorkloadLink, Workloads } from "./workloads.js";

const RELEASED = 50; // claims that are shown beside the active ones

const Part = ({ title, children, id = title.toLowerCase().replaceAll(" ", "-") }) => html`<section aria-labelledby=${id}>
  <h2 id=${id}>${title}</h2>${children}
</section>`;

function Summary({ node, service }) {
  const { cpu_info: cpu, system } = node;
  const { cells, sockets, cores, threads } = cpu.topology ?? {};
  const topology = cells && [
    cells > 1 && `${cells} cells`, plural(sockets, "socket"), plural(cores, "core"), plural(threads, "thread"),
  ].filter(Boolean).join(" × ");
  const isAuto = node.disabled_reason?.startsWith("AUTO: ");
  const disabled = node.status === "disabled" &&
    html`by ${isAuto ? "its agent" : "an administrator"}: <bdi>${node.disabled_reason?.replace("AUTO: ", "") || "no reason given"}</bdi>`;
  const lines = [
    ["Disabled", disabled],
    ["Down", service?.forced_down && "forced by an administrator"],
    ["Read", html`<${Ago} at=${node.read_at} />`],
    ["Heartbeat", html`<${Ago} at=${node.last_seen_up} />`],
    ["Uptime", node.booted_at && html`${age((serverNow() - Date.parse(node.booted_at)) / 1000)}, since ${time(node.booted_at)}`],
    ["CPU", [cpu.model || node.architecture, topology].filter(Boolean).join(", ")],
    ["System", [node.os, node.kernel_version].filter(Boolean).join(", ")],
    ["Hypervisor", `${node.hypervisor_type} ${versionOf(node.hypervisor_version)}`],
    ["Machine", [system.vendor, system.product, system.serial].filter(Boolean).join(" ")],
    ["Address", node.host_ip],
    ["Runs", [plural(node.running_vms, "instance"), plural(node.total_containers, "container")].join(", ")],
  ];
  return html`<dl class="summary">${lines.filter(([, text]) => text).map(([name, text]) => html`<div>
    <dt>${name}</dt><dd>${text}</dd></div>`)}</dl>`;
}

const versionOf = (version) =>
  version ? [1e6, 1e3, 1].map((unit) => Math.floor(version / unit) % 1000).join(".") : "";

function Warnings({ node }) {
  const { data } = usePoll(`/v1/warnings?host=${encodeURIComponent(node.host)}`);
  const found = data?.warnings.filter(({ nodename }) => ["", node.hypervisor_hostname].includes(nodename)) ?? [];
  return found.length > 0 && html`<${Part} title="Warnings"><ul class="warnings">
    ${found.map(({ id, kind, message, first_seen, nodename }) => html`<li key=${id}>
      <${Mark} word=${kind.replaceAll("_", " ")} level="warning" />
      <bdi>${message}</bdi> <span class="quiet">${!nodename && "whole host, "}since <${Ago} at=${first_seen} /></span>
    </li>`)}
  </ul><//>`;
}

const LEVELS = { fresh: "good", held: "warning", unknown: "bad" };
const FIXED = { isFixed: true };
const FACT_COLUMNS = [
  textColumn("name", "Fact", FIXED),
  { id: "fact-state", title: "State", ...FIXED, cell: ({ state }) => html`<${Mark} word=${state} level=${LEVELS[state]} />` },
  { ...ageColumn("since", "Since"), ...FIXED },
  textColumn("source", "Source", FIXED),
  textColumn("error", "Error", FIXED),
];

function Facts({ facts }) {
  const rows = Object.entries(facts).map(([name, fact]) => ({ name, ...fact }));
  return html`<${Table} caption="Facts" columns=${FACT_COLUMNS} rows=${rows} keyOf=${({ name }) => name} empty="Nothing was read yet." />`;
}

function History({ path, generation }) {
  const { data } = useFollow(`${path}/history?limit=10`, generation);
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
  return data && html`<ol class="history">${[...data.history, ...older].map(({ id, at, what, diff }) => html`<li key=${id}>
      <h3>${time(at)} <span class="quiet">${what}, <${Ago} at=${at} /></span></h3><${Diff} diff=${diff} />
    </li>`)}</ol>
    ${data.history.length === 0 && html`<p class="quiet">No change.</p>`}
    ${next && html`<button type="button" onClick=${more}>Older</button>`}`;
}

// Return the node's claims, newest first: the active ones, and some that were released.
function useClaims(path, generation) {
  const active = useFollow(`${path}/claims?sort_dir=desc&state=held&state=confirmed`, generation);
  const released = useFollow(`${path}/claims?sort_dir=desc&state=released&limit=${RELEASED}`, generation);
  return useMemo(
    () => [...(active.data?.claims ?? []), ...(released.data?.claims ?? [])]
      .sort((a, b) => b.created_at.localeCompare(a.created_at)),
    [active.data, released.data],
  );
}

function Node({ node, path }) {
  const about = useAbout();
  const [asked, setAsked] = useState(null);
  const overview = usePoll("/v1/overview").data;
  const services = usePoll(`/v1/services?binary=nodetracker-compute&host=${encodeURIComponent(node.host)}`);
  const service = services.data?.services[0];
  const line = overview?.nodes.find(({ uuid }) => uuid === node.uuid);
  const { generation } = node;
  const { data: listed } = useFollow(`${path}/workloads`, generation);
  const workloads = listed?.workloads ?? [];
  const devices = useFollow(`${path}/devices`, generation).data?.devices ?? [];
  const claims = useClaims(path, generation);
  const byOwner = useMemo(
    () => new Map(workloads.flatMap((each) => [[each.uuid, each], [each.claim_uuid, each]])), [listed],
  );
  const nameOfClaim = useMemo(
    () => (claim) => byOwner.get(claim.uuid)?.name || claim.workload_name || claim.workload_uuid, [byOwner],
  );
  const ownerOf = (uuid, claim) => html`<${WorkloadLink} workload=${byOwner.get(uuid) ?? {
    uuid: claim?.workload_uuid ?? uuid, name: claim?.workload_name ?? "" }} />`;
  const abort = (claim) => abortOf(about, claim, nameOfClaim(claim));
  const mayAbort = claims.some(abort);
  const abortButton = (claim) => abort(claim) &&
    html`<button type="button" onClick=${() => setAsked(abort(claim))} aria-label=${`Abort the claim of ${nameOfClaim(claim)}`}>Abort</button>`;
  return html`
    <div class="title"><h1><bdi>${node.hypervisor_hostname}</bdi></h1>
      <p><${State} of=${{ ...node, freshness: line?.freshness }} /></p>
      <p class="actions">${listActions(about, node, service).map((action) => html`<button type="button" key=${action.path + action.title}
        onClick=${() => setAsked(action)}>${action.title}</button>`)}</p>
    </div>
    <p class="quiet">Host <bdi>${node.host}</bdi>, <code>${node.uuid}</code></p>
    ${asked && html`<${Ask} action=${asked} node=${node} onClose=${() => setAsked(null)} />`}
    <${Summary} node=${node} service=${service} />
    ${line && html`<${Part} title="Resources"><${Totals} amounts=${line.amounts} /><//>`}
    <${Warnings} node=${node} />
    <${Part} title="Why"><${Why} path=${path} generation=${generation} /><//>
    <${Part} title="NUMA"><${NumaMap} node=${node} claims=${claims} nameOf=${nameOfClaim} /><//>
    ${node.gpus.length > 0 && html`<${Part} title="GPUs"><${Gpus} gpus=${node.gpus} devices=${devices} ownerOf=${ownerOf} /><//>`}
    ${devices.length > 0 && html`<${Part} title="PCI devices"><${PciTree} devices=${devices} ownerOf=${ownerOf} /><//>`}
    <${Part} title="Workloads"><${Workloads} workloads=${workloads} empty="Nothing is on this node." /><//>
    <${Part} title="Claims">${claims.length > 0
      ? html`<${Timeline} claims=${claims} ownerOf=${ownerOf} actions=${mayAbort ? abortButton : null} />`
      : html`<p class="quiet">No claim yet.</p>`}<//>
    <${Part} title="Facts"><${Facts} facts=${node.facts} /><//>
    <${Part} title="History"><${History} path=${path} generation=${generation} /><//>
    <${Part} title="Row"><details><summary>All columns, generation ${number(generation)}</summary>
      <pre tabindex="0">${JSON.stringify(node, null, 2)}</pre></details><//>`;
}

// Render the view.
export function NodePage({ uuid }) {
  const path = `/v1/nodes/${encodeURIComponent(uuid)}`;
  return html`<${Answer} poll=${usePoll(path)}>${(node) => html`<${Node} node=${node} path=${path} />`}<//>`;
}
