// The list of hosts, of which several are changed at once, and a host's page.
import { List, MOVING, OpenMoves, WARNINGS } from "./lists.js";
import { NODES } from "./overview.js";
import { ago, answer, bar, bdi, column, compare, decisions, fixed, hostLink, html, isWaiting, join, link, mark, number, numeric, plural, quiet, reasonOf, section, select, sentence, setQuery, states, time, useAsk, useList, useLocation, useMay, usePoll, useSubject } from "./page.js";
import { lastNight } from "./verbs.js";
import { Workloads } from "./workloads.js";

const AGENT = "nodetracker-compute";
const OTHERS = ["nodetracker-conductor", "nodetracker-api"];

const percent = (share) => (share === null ? "unknown" : html`${bar({ limit: 1, total: 1, reserved: 0, used: share, free: 1 - share })}<span class="amount">${Math.floor(100 * share)} %</span>`);
const STATE = column("state", "State", (_, row) => states(row), ({ state, status }) => state + status);
const HOSTS = [
  STATE,
  { ...column("host_name", "Host", hostLink), sortKey: "host_name" },
  { ...numeric("fullness", "Fullest", percent), sortKey: "fullness" },
  numeric("nodes", "Nodes"),
  numeric("guests", "Guests"),
  column("why", "Why", sentence, reasonOf),
  column("by", "By", bdi, (row) => row.forced_down_by ?? row.maintenance_by ?? row.disabled_by),
];
const SERVICES = [
  STATE,
  column("binary", "Service"),
  column("host", "On", bdi),
  column("last_seen_up", "Heartbeat", ago),
  column("version", "Version"),
];
const YES_NO = [["true", "yes"], ["false", "no"]];
const CHOICES = { state: ["up", "down", "unreachable"], status: ["enabled", "disabled"], maintenance: YES_NO, spare: YES_NO };

// The services that are not a host's agent.
function Services() {
  const found = OTHERS.map((binary) => useList("services", { binary }).data?.services ?? []).flat();
  return found.length > 0 && section("Other services", fixed("Other services", SERVICES, found));
}

export function Hosts() {
  const { query } = useLocation();
  const { name = query.host, ...filters } = query; // another view's links have a host
  const mayChange = useMay("services:update");
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Find <input type="search" placeholder="part of a host's name" value=${name ?? ""}
        onInput=${({ target }) => setQuery({ name: target.value, host: "", marker: "" })} /></label>
      ${Object.entries(CHOICES).map(([each, values]) => select(each[0].toUpperCase() + each.slice(1), query[each] ?? "", [["", "all"], ...values],
        (value) => setQuery({ [each]: value, marker: "" })))}
      ${Object.keys(query).length > 0 && link("/hosts", "Clear")}
    </form>
    <${List} noun="hosts" look="dense" columns=${HOSTS} sort="host_name" nameOf=${mayChange && (({ host_name: host }) => host)} empty="No host is like that." below=${html`<${Services} />`}
      filters=${{ name_part: name, ...Object.fromEntries(Object.keys(CHOICES).map((each) => [each, filters[each]])) }} />`;
}

const OWN_NODES = NODES.filter(({ id }) => id !== "host");

// Return how many guests a host had when it was taken out, if that is known.
function useStart(host, isOut) {
  const { history = [] } = useList("history", { host, kind: "service", limit: 20 }, String(isOut)).data ?? {};
  return history.map(({ diff }) => diff.guests).find((guests) => guests !== undefined);
}

// Say what is still on a host, and whether it can be switched off.
function Remains({ host, service: { status, maintenance }, nodes }) {
  const guests = nodes.reduce((sum, { running_vms: vms, total_containers: containers }) => sum + vms + containers, 0);
  const isOut = status === "disabled" || maintenance;
  const start = useStart(host, isOut);
  const known = isOut && start >= guests;
  const text = join([plural(nodes.length, "node"), known ? `${number(start)} → ${plural(guests, "guest")}`
    : guests > 0 ? `${plural(guests, "guest")}${isOut ? " still there" : ""}` : "no guests"]);
  return html`<p class="remains">${isOut ? mark(text, guests > 0 ? "warning" : "good") : text}
    ${known && html`<progress max=${start} value=${start - guests} aria-label="Guests that have left"></progress>`}</p>`;
}

// Say whether the guests of a host would fit elsewhere, once services have found it out.
function Loss({ host }) {
  const { data } = usePoll(`/v1/tolerance?${new URLSearchParams({ host })}`);
  const [found] = data?.hosts ?? [];
  if (!found) return null;
  const text = `If it fails, ${found.text}`;
  return html`<p>${found.verdict === "survived" ? text : mark(text, "warning")}${data.is_stale && html`, as of ${ago(found.checked_at)}`}</p>`;
}

// Return the nodes of a host in natural order.
function useNodes(host) {
  const { nodes } = useList("nodes", { host }).data ?? {};
  return nodes?.toSorted((a, b) => compare(a.hypervisor_hostname, b.hypervisor_hostname));
}

function Heartbeat({ host, service, since }) {
  const { state, last_seen_up: seen, version, clock_skew_seconds: skew } = service;
  const isUp = state === "up";
  return html`<p class="quiet">${isUp ? html`Heartbeat ${ago(seen)}` : html`Down since ${time(since ?? seen)}, ${ago(since ?? seen)}`}, version ${version}${isUp && skew !== null
    && Math.abs(skew) >= 1 && `, clock off by ${number(Math.round(skew * 10) / 10)} s`}. ${link("/events", "Last night", { host, ...lastNight() })} · ${link("/events", "What happened", { host })}</p>`;
}

export function HostPage() {
  const { host = "" } = useLocation().query;
  useSubject(host, host);
  const [dialog, open] = useAsk();
  const services = useList("services", { host, binary: AGENT });
  const nodes = useNodes(host);
  const polls = [useList("workloads", { host }), useList("warnings", { host }), usePoll(`/v1/hosts/${encodeURIComponent(host)}/actions`),
    useList("migrations", { host, status: MOVING })];
  const [{ workloads = [] }, { warnings = [] }, { actions = [] }] = polls.map(({ data }) => data ?? {});
  return isWaiting([services, ...polls]) || (services.data && !nodes) ? quiet("Loading…") : answer(services, ({ services: [service] }) => (service ? html`${dialog}
    <div class="title"><h1><bdi>${host}</bdi></h1><p>${states(service)}</p>
      <p class="actions">${actions.map((action) => open(action, { Host: host }))}</p></div>
    ${nodes && html`<${Remains} host=${host} service=${service} nodes=${nodes} />`}
    <${Loss} host=${host} />
    ${decisions(service).map(([title, text]) => text && html`<p>${title} ${text}</p>`)}
    <${Heartbeat} host=${host} service=${service} since=${nodes?.[0]?.down_since} />
    ${nodes && section("Nodes", fixed("Nodes", OWN_NODES, nodes, { look: "dense", empty: "It has no node." }))}
    <${OpenMoves} host=${host} title="Moves" />
    ${workloads.length > 0 && section("Workloads", html`<${Workloads} workloads=${workloads} />`)}
    ${warnings.length > 0 && section("Warnings", fixed("Warnings", WARNINGS, warnings))}`
    : quiet("No such host.")));
}
