// The list of hosts, of which several are changed at once, and a host's page.
import { List, OpenMoves, STATE, WARNINGS, WHY_DISABLED } from "./lists.js";
import { NODES } from "./overview.js";
import { ago, answer, column, decisions, fixed, hostLink, html, join, link, mark, plural, quiet, section, states, useAsk, useList, useLocation, useMay, usePoll, useState } from "./page.js";
import { Workloads } from "./workloads.js";

const HOSTS = [
  STATE,
  column("host_name", "Host", hostLink),
  WHY_DISABLED,
  column("disabled_at", "Since", (at) => at && ago(at)),
  column("disabled_by", "By"),
];
const CHANGES = [ // of several hosts at once
  { title: "Take out of service", takes_reason: true, body: { disabled: true, maintenance: true },
    effect: "They are disabled, with a reason, and in maintenance: no node of them accepts new claims. What runs there is not touched." },
  { title: "Put into service", body: { disabled: false, maintenance: false },
    effect: "They are enabled, and maintenance ends: all of their nodes accept claims again." },
];

export function Hosts() {
  const [chosen, setChosen] = useState({}); // uuid of the agent's service -> host
  const [dialog, open] = useAsk();
  const mayChange = useMay("services:update");
  const each = Object.entries(chosen).map(([uuid, name]) => ({ name, path: `/v1/services/${uuid}` }));
  const choose = (uuid, name, isChosen) => {
    const { [uuid]: _, ...others } = chosen;
    setChosen(isChosen ? { ...others, [uuid]: name } : others);
  };
  const box = column("chosen", "Choose", (_, { uuid, host_name: name }) => html`<input type="checkbox" aria-label=${`Choose ${name}`}
    checked=${uuid in chosen} onChange=${({ target }) => choose(uuid, name, target.checked)} />`, ({ uuid }) => Number(uuid in chosen));
  return html`${dialog}
    ${mayChange && html`<p class="actions">${plural(each.length, "host")} chosen
      ${each.length > 0 && CHANGES.map((change) => open({ ...change, method: "PATCH" }, {}, { each, onDone: () => setChosen({}) }))}</p>`}
    <${List} noun="hosts" columns=${mayChange ? [box, ...HOSTS] : HOSTS} sort="host_name" empty="No host." />`;
}

// Say what is still on a host, and whether it can be switched off.
function remains({ status, maintenance }, nodes) {
  const guests = nodes.reduce((sum, { running_vms: vms, total_containers: containers }) => sum + vms + containers, 0);
  const isOut = status === "disabled" || maintenance;
  const text = join([plural(nodes.length, "node"), guests > 0 ? `${plural(guests, "guest")}${isOut ? " still there" : ""}` : "no guests"]);
  return html`<p class="remains">${isOut ? mark(text, guests > 0 ? "warning" : "good") : text}</p>`;
}

export function HostPage() {
  const { host = "" } = useLocation().query;
  const [dialog, open] = useAsk();
  const services = useList("services", { host, binary: "nodetracker-compute" });
  const { nodes } = useList("nodes", { host }).data ?? {};
  const { workloads } = useList("workloads", { host }).data ?? {};
  const { warnings = [] } = useList("warnings", { host }).data ?? {};
  const { actions = [] } = usePoll(`/v1/hosts/${encodeURIComponent(host)}/actions`).data ?? {};
  return answer(services, ({ services: [service] }) => (service ? html`${dialog}
    <div class="title"><h1><bdi>${host}</bdi></h1><p>${states(service)}</p>
      <p class="actions">${actions.map((action) => open(action, { Host: host }))}</p></div>
    ${nodes && remains(service, nodes)}
    ${decisions(service).map(([title, text]) => text && html`<p>${title} ${text}</p>`)}
    <p class="quiet">Heartbeat ${ago(service.last_seen_up)}, version ${service.version}. ${link("/events", "What happened", { host })}</p>
    ${section("Nodes", fixed("Nodes", NODES, nodes ?? [], { look: "dense", empty: "It has no node." }))}
    ${section("Moves", html`<${OpenMoves} host=${host} />`)}
    ${section("Workloads", html`<${Workloads} workloads=${workloads} empty="Nothing is on this host." />`)}
    ${warnings.length > 0 && section("Warnings", fixed("Warnings", WARNINGS, warnings))}`
    : quiet("No such host.")));
}
