// A node: its state and amounts, why they are so, what it has, what is on it, and what may be done to it.
import { gpuList, numaMap, pciTree } from "./hardware.js";
import { WARNINGS } from "./lists.js";
import { ageOf, ago, answer, column, fixed, folded, hostLink, html, link, list, mark, navigate, number, quiet, section, sentence, setQuery, states, time, useAsk, useEffect, useList, useLocation, useMay, usePoll } from "./page.js";
import { TrendTotals } from "./trends.js";
import { amountColumn, Claims, RESOURCE, useClaims, Workloads } from "./workloads.js";

function summary(node, machine) {
  const reason = node.disabled_reason ?? "";
  const disabler = reason.startsWith("AUTO: ") ? "its agent" : node.disabled_by ?? "an administrator";
  const lines = [
    ["Disabled", node.status === "disabled" && html`${node.disabled_at && ago(node.disabled_at)} by <bdi>${disabler}</bdi>: <bdi>${reason.replace("AUTO: ", "") || "no reason given"}</bdi>`],
    ["Read", html`${ago(node.read_at)}, heartbeat ${ago(node.last_seen_up)}`],
    ["Uptime", node.booted_at && `${ageOf(node.booted_at)}, since ${time(node.booted_at)}`],
    ["Measured", list(node.measured.map(({ label, text, at }) => html`${label}: ${text}${at && html`, ${ago(at)}`}`), "plain")],
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

// Render why the usage is what it is: row, claims and hypervisor side by side.
const why = ({ diff, explanations }) => html`${fixed("Usage, reserved amounts included", WHY, diff)}
  ${explanations.length > 0 ? list(explanations) : html`<p>${mark("Row, claims and hypervisor agree.", "good")}</p>`}`;

const history = (entries) => html`<ol class="plain history">${entries.map(({ id, at, what, changes }) => html`<li key=${id}>
  <h3>${time(at)} <span class="quiet">${what}, ${ago(at)}</span></h3>${list(changes, "plain")}</li>`)}</ol>`;

const abortOf = ({ id, name }) => ({
  title: `Abort the claim of ${name}`, method: "DELETE", path: `/v1/claims/${id}`, is_dangerous: true,
  effect: "It is released. A guest that runs still counts, without a claim.",
});

function Node({ node, path }) {
  const mayAbort = useMay("claims:abort");
  const [dialog, open, show] = useAsk();
  const { generation, host, hypervisor_hostname: nodename } = node;
  const usePart = (name) => usePoll(`${path}/${name}`, generation).data;
  const { actions = [] } = usePoll(`${path}/actions`).data ?? {};
  const ofHost = useList("warnings", { host }).data?.warnings ?? [];
  const warnings = ofHost.filter((each) => [nodename, ""].includes(each.nodename));
  const parts = usePart("description");
  const diff = usePart("diff");
  const workloads = usePart("workloads")?.workloads;
  const changes = usePart("history?limit=10")?.history;
  const claims = useClaims(usePart);
  const placeOf = ({ target }) => (target === "host" ? { Host: host } : { Host: host, Node: nodename });
  const onDone = ({ path: changed }) => changed === path && navigate("/"); // it is deleted
  const ask = (action, text = action.title) => open(action, placeOf(action), { text, onDone });
  const { ask: wanted } = useLocation().query;
  const named = wanted && actions.find(({ title }) => title.includes(wanted));
  useEffect(() => {
    if (!named) return;
    setQuery({ ask: "" });
    show(named, placeOf(named));
  }, [named]);
  const abortButton = (claim) => claim.state !== "released" && ask(abortOf(claim), "Abort");
  const sections = {
    Resources: parts && html`<${TrendTotals} amounts=${parts.amounts} path=${`${path}/trends`} />`,
    Warnings: warnings.length > 0 && fixed("Warnings", WARNINGS, warnings),
    Why: diff && why(diff),
    NUMA: parts && numaMap(parts.cells),
    GPUs: parts?.gpus.length > 0 && gpuList(parts.gpus),
    "PCI devices": parts && pciTree(parts),
    Workloads: html`<${Workloads} workloads=${workloads} isHere empty="Nothing is on this node." />`,
    Claims: html`<${Claims} claims=${claims} actionOf=${mayAbort && abortButton} />`,
    Facts: fixed("Facts", FACTS, Object.entries(node.facts).map(([name, fact]) => ({ name, ...fact })), { empty: "Nothing was read yet." }),
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
    ${summary(node, parts?.machine ?? [])}
    ${Object.entries(sections).map(([title, content]) => content && section(title, content))}`;
}

function NodeOf({ uuid }) {
  const path = `/v1/nodes/${encodeURIComponent(uuid)}`;
  return answer(usePoll(path), (node) => html`<${Node} node=${node} path=${path} />`);
}

function NamedNode() {
  const { host = "", nodename = "" } = useLocation().query;
  return answer(useList("nodes", { host, nodename }, 0), ({ nodes: [node] }) => (node ? html`<${NodeOf} uuid=${node.uuid} />` : quiet("No such node.")));
}

// Render the node of a uuid, or the one whose host and nodename are in the address.
export const NodePage = ({ uuid }) => (uuid ? html`<${NodeOf} uuid=${uuid} />` : html`<${NamedNode} />`);
