// The page of a node.
import { WARNINGS } from "./lists.js";
import { ageOf, ago, answer, aside, bar, column, decisions, fixed, folded, hostLink, html, isWaiting, legend, link, list, mark, navigate, number, quiet, section, sentence, states, step, time, useAsk, useList, useLocation, useMay, usePoll, useState, useSubject } from "./page.js";
import { TrendTotals } from "./trends.js";
import { amountColumn, Claims, RESOURCE, useClaims, workloadLink, Workloads } from "./workloads.js";

function summary(node, machine) {
  const isUp = node.state === "up"; // what was measured before it went says nothing of now
  const lines = [
    ["Down since", node.down_since && html`${time(node.down_since)}, ${ago(node.down_since)}`],
    ...decisions(node),
    ["Read", html`${ago(node.read_at)}, heartbeat ${ago(node.last_seen_up)}`],
    ["Uptime", isUp && node.booted_at && `${ageOf(node.booted_at)}, since ${time(node.booted_at)}`],
    ["Measured", isUp && list(node.measured.map(({ label, text, at }) => html`${label}: ${text}${at && html`, ${ago(at)}`}`), "plain")],
    ...machine.map(({ label, text }) => [label, text]),
  ];
  return html`<dl class="summary">${lines.map(([label, text]) => text && html`<div><dt>${label}</dt><dd>${text}</dd></div>`)}</dl>`;
}

const FACTS = [
  column("name", "Fact"),
  column("state", "State", (state) => mark(state)),
  column("since", "Since", ago),
  column("source", "Source"),
  column("error", "Error", sentence),
];

const WHY = [
  RESOURCE,
  amountColumn("row_used", "Row"),
  amountColumn("ledger", "Claims and guests"),
  amountColumn("hypervisor", "Hypervisor"),
  amountColumn("difference", "Difference"),
];

// Row, claims and hypervisor side by side.
const why = ({ diff, explanations }) => html`${fixed("Usage, reserved amounts included", WHY, diff)}
  ${explanations.length > 0 ? list(explanations) : html`<p>${mark("Row, claims and hypervisor agree.", "good")}</p>`}`;

const history = (entries) => html`<ol class="plain history">${entries.map(({ id, at, what, changes }) => html`<li key=${id}>
  <h3>${time(at)} <span class="quiet">${what}, ${ago(at)}</span></h3>${list(changes, "plain")}</li>`)}</ol>`;

const abortOf = ({ id, name }) => ({
  title: `Abort the claim of ${name}`, method: "DELETE", path: `/v1/claims/${id}`, is_dangerous: true,
  effect: "It is released. A guest that runs still counts, without a claim.",
});

const USES = ["pinned", "dedicated", "shared", "host", "offline"];
const MANY = 8;

// The squares, of which the threads of a core touch: arrows move from one to the next.
function Cpus({ title, summary, cores }) {
  const cpus = cores.flat();
  const [current, setCurrent] = useState(null);
  const index = cpus.findIndex(({ id }) => id === current);
  const press = (event) => {
    const next = step(event, index, cpus.length);
    if (next !== undefined) setCurrent(cpus[next].id);
  };
  return html`<div class="cpus" role="listbox" tabindex="0" aria-label=${`${title}: ${summary}`} aria-activedescendant=${index < 0 ? undefined : `cpu-${current}`}
      onKeyDown=${press} onFocus=${() => setCurrent(current ?? cpus[0].id)}>
      ${cores.map((core) => html`<span class="core">${core.map(({ id, use, text }) => html`<span key=${id} id=${`cpu-${id}`} title=${text} role="option" aria-label=${text}
        aria-selected=${id === current} class=${`cpu cpu-${use} ${id === current ? "current" : ""}`} onPointerEnter=${() => setCurrent(id)}></span>`)}</span>`)}
    </div>
    ${quiet(cpus[index]?.text ?? summary)}`;
}

const distances = (cells) => html`<table class="distances">
  <caption>Distances</caption>
  <thead><tr><td></td>${cells.map(({ id }) => html`<th scope="col">${id}</th>`)}</tr></thead>
  <tbody>${cells.map((cell) => html`<tr><th scope="row">${cell.id}</th>
    ${cell.distances.map((distance) => html`<td>${distance ?? "?"}</td>`)}</tr>`)}</tbody>
</table>`;

function numaMap(boxes) {
  const cells = boxes.filter(({ id }) => id !== null);
  return html`<div class="cells">${boxes.map((box) => html`<div class="cell" key=${box.title}>
      <h3>${box.title} ${aside(box.notes)}</h3>
      ${box.cores.length > 0 ? html`<${Cpus} ...${box} />` : quiet(box.summary)}
      <dl class="pages">${box.memory.map(({ title, text, use }) => html`<dt>${title}</dt><dd>${bar(use)}${text}</dd>`)}</dl>
    </div>`)}</div>
    ${legend(USES.map((use) => [html`<span class=${`cpu cpu-${use}`}></span>`, use]))}
    ${cells.length > 1 && cells[0].distances.some(Boolean) && distances(cells)}`;
}

const ownerOf = (owner, word = "") => owner && html` ${word} ${workloadLink(owner)}`;

const listDevices = (devices) => list(devices.map(({ address, kind, notes, status, owner, summary, functions }) => {
  const below = functions.length > 0 && listDevices(functions);
  return html`<code>${address}</code> ${kind} ${aside(notes)} ${mark(status)}${ownerOf(owner, "by")}
    ${functions.length > MANY ? folded(summary, below) : below}`;
}), "tree");

const listCells = (cells) => cells.map(({ title, devices }) => html`<h3>${title}</h3>${listDevices(devices)}`);

// The devices by cell, the host's own ones folded; false without any.
const pciTree = ({ devices, host_devices: others }) => devices.length + others.length > 0 && [
  devices.length > 0 ? listCells(devices) : quiet("No device spec offers any to workloads."),
  others.length > 0 && folded("Devices of the host", listCells(others)),
];

const gpuList = (gpus) => list(gpus.map(({ address, name, notes, owner }) => html`<strong>${name}</strong> <code>${address}</code>${" "}
  ${aside(notes)}${ownerOf(owner, "used by") ?? " free"}`), "tree");

function Node({ node, path }) {
  const mayAbort = useMay("claims:abort");
  const [dialog, open] = useAsk();
  const { generation, host, hypervisor_hostname: nodename } = node;
  const polls = [usePoll(`${path}/actions`), useList("warnings", { host })];
  const [{ actions = [] }, { warnings: ofHost = [] }] = polls.map(({ data }) => data ?? {});
  const usePart = (name) => {
    const poll = usePoll(`${path}/${name}`, generation);
    polls.push(poll);
    return poll.data;
  };
  const warnings = ofHost.filter((each) => [nodename, ""].includes(each.nodename));
  const parts = usePart("description");
  const diff = usePart("diff");
  const workloads = usePart("workloads")?.workloads;
  const changes = usePart("history?limit=10")?.history;
  const claims = useClaims(usePart);
  const placeOf = ({ target }) => (target === "host" ? { Host: host } : { Host: host, Node: nodename });
  const onDone = ({ path: changed }) => changed === path && navigate("/"); // it is deleted
  const ask = (action, text = action.title) => open(action, placeOf(action), { text, onDone });
  const abortButton = (claim) => claim.state !== "released" && ask(abortOf(claim), "Abort");
  const facts = Object.entries(node.facts).map(([name, fact]) => ({ name, ...fact }));
  useSubject(nodename, host);
  const sections = {
    Resources: parts && html`<${TrendTotals} amounts=${parts.amounts} left=${parts.left} path=${`${path}/trends`} isDown=${node.state !== "up"} place=${{ host, nodename }} />`,
    Warnings: warnings.length > 0 && fixed("Warnings", WARNINGS, warnings),
    Why: diff && why(diff),
    NUMA: parts && numaMap(parts.cells),
    GPUs: parts?.gpus.length > 0 && gpuList(parts.gpus),
    "PCI devices": parts && pciTree(parts),
    Workloads: workloads && html`<${Workloads} workloads=${workloads} isHere empty="Nothing is on this node." />`,
    Claims: html`<${Claims} claims=${claims} actionOf=${mayAbort && abortButton} />`,
    Facts: facts.some(({ state }) => state !== "fresh") && fixed("Facts", FACTS, facts),
    History: changes && html`${history(changes)}${link("/events", "All events", { host, nodename })}`,
    Row: folded(`All columns, generation ${number(generation)}`, html`<pre tabindex="0">${JSON.stringify(node, null, 2)}</pre>`),
  };
  return html`
    <div class="title"><h1><bdi>${nodename}</bdi></h1>
      <p>${states(node)}</p>
      <p class="actions">${actions.map((action) => ask(action))}</p>
    </div>
    <p class="quiet">Host ${hostLink(host)}, <code>${node.uuid}</code></p>
    ${dialog}
    ${isWaiting(polls) ? quiet("Loading…") : [summary(node, parts?.machine ?? []), Object.entries(sections).map(([title, content]) => content && section(title, content))]}`;
}

function NodeOf({ uuid }) {
  const path = `/v1/nodes/${encodeURIComponent(uuid)}`;
  return answer(usePoll(path), (node) => html`<${Node} node=${node} path=${path} />`);
}

function NamedNode() {
  const { host = "", nodename = "" } = useLocation().query;
  return answer(useList("nodes", { host, nodename }, 0), ({ nodes: [node] }) => (node ? html`<${NodeOf} uuid=${node.uuid} />` : quiet("No such node.")));
}

// Render the node of a uuid, or of the host and nodename in the address.
export const NodePage = ({ uuid }) => (uuid ? html`<${NodeOf} uuid=${uuid} />` : html`<${NamedNode} />`);
