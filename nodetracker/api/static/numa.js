// The NUMA map of a node: a box for each cell with a square for each CPU; threads of a core touch.
import { bar } from "./amounts.js";
import { amountOf, join, memory, number } from "./format.js";
import { html, useMemo, useState } from "./preact.js";
import { announce, legend, quiet } from "./widgets.js";

const STATES = {
  pinned: "pinned by a workload",
  dedicated: "dedicated, free to be pinned",
  shared: "shared by workloads",
  host: "for the host alone",
  offline: "offline",
};
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

// Return the numbers of a list such as "0-3,8".
const parseCpus = (text) => (text || "").split(",").filter(Boolean).flatMap((part) => {
  const [first, last = first] = part.split("-").map(Number);
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
});

function renderCpus(cpus) {
  const runs = [];
  for (const cpu of cpus.toSorted((a, b) => a - b)) {
    if (runs.at(-1)?.at(-1) === cpu - 1) runs.at(-1)[1] = cpu;
    else runs.push([cpu]);
  }
  return runs.map((run) => run.join("–")).join(", ");
}

// Return CPU -> what its workloads do there.
function findUsers(workloads) {
  const users = new Map();
  const add = (cpu, text) => users.set(cpu, [...(users.get(cpu) ?? []), text]);
  for (const { uuid, name, numa } of workloads) {
    for (const { pins, isolated } of numa?.cells ?? []) {
      for (const [guest, cpu] of Object.entries(pins)) add(cpu, `${name || uuid} (its CPU ${guest})`);
      for (const cpu of isolated) add(cpu, `${name || uuid} (kept free)`);
    }
  }
  return users;
}

// Return the boxes of a node: {title, cell, cores}, each core a list of {id, state, text}.
// Every CPU is in one box: that of its cell, or one of those without a cell.
function buildMap({ cpu_info: info, numa_topology: topology }, workloads) {
  const users = findUsers(workloads);
  const cells = topology.cells ?? [];
  const [online, offline, dedicated, shared] = [info.online, info.offline, info.dedicated, info.shared].map(parseCpus);
  const states = new Map([ // of a CPU in several, the last one counts
    [shared, "shared"], [dedicated, "dedicated"], [cells.flatMap((cell) => cell.pinned_cpus), "pinned"], [offline, "offline"],
  ].flatMap(([ids, state]) => ids.map((id) => [id, state])));
  const seen = new Set();
  const cpuOf = (id) => {
    seen.add(id);
    const state = states.get(id) ?? "host";
    const text = state === "pinned" ? `pinned by ${users.get(id)?.join(", ") ?? "a workload"}` : STATES[state];
    return { id, state, text: `CPU ${id}: ${text}` };
  };
  const boxes = cells.map((cell) => {
    const grouped = new Set(cell.siblings.flat());
    const single = [...cell.cpuset, ...cell.pcpuset].filter((id) => !grouped.has(id)).map((id) => [id]);
    const cores = [...cell.siblings, ...single].sort(([a], [b]) => a - b);
    return { title: `Cell ${cell.id}`, cell, cores: cores.map((core) => core.map(cpuOf)) };
  });
  const others = (title, ids) => ({ title, cores: ids.filter((id) => !seen.has(id)).map((id) => [cpuOf(id)]) });
  const outside = [others(cells.length > 0 ? "In no cell" : "CPUs", online), others("Offline", offline)];
  return [...boxes, ...outside.filter(({ cores }) => cores.length > 0)];
}

const sumUp = (cpus) => join(Object.entries(Object.groupBy(cpus, ({ state }) => state))
  .map(([state, own]) => `${state} ${renderCpus(own.map(({ id }) => id))}`), "; ");

// The squares; arrows move from one to the next, the text below says what it is.
function Cpus({ title, cores }) {
  const cpus = cores.flat();
  const [current, setCurrent] = useState(null);
  const index = cpus.findIndex(({ id }) => id === current);
  const press = (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const cpu = cpus[Math.min(Math.max(index + step, 0), cpus.length - 1)];
    setCurrent(cpu.id);
    announce(cpu.text);
  };
  const sum = sumUp(cpus);
  return html`<div class="cpus" role="img" tabindex="0" aria-label=${`${title}: ${sum}. Arrow keys name each CPU.`} onKeyDown=${press}>
      ${cores.map((core) => html`<span class="core">${core.map(({ id, state, text }) => html`<span key=${id} data-cpu=${id} title=${text}
        class=${`cpu cpu-${state} ${id === current ? "current" : ""}`} onPointerEnter=${() => setCurrent(id)}></span>`)}</span>`)}
    </div>
    ${quiet(cpus[index]?.text ?? sum)}`;
}

const useOf = (total, reserved, claimed) => ({ total, reserved, claimed, free: total - reserved - claimed, limit: total });

const memoryOf = ({ memory: total, memory_usage: placed, mempages }) => html`<dl class="pages">
  <dt>Memory</dt>
  <dd>${bar(useOf(total, 0, placed))}${total > 0 ? `${amountOf("MEMORY_MB", placed, total)} placed here` : "none"}</dd>
  ${mempages.slice(1).filter((pages) => pages.total > 0 || pages.used > 0).map(({ size_kb, total, used, reserved }) => html`
    <dt>${memory(size_kb / 1024)} pages</dt>
    <dd>${bar(useOf(total, reserved, used))}
      ${number(used)} of ${number(total)} used${reserved > 0 && `, ${number(reserved)} reserved`}</dd>`)}
</dl>`;

const distancesOf = (cells) => html`<table class="distances">
  <caption>Distances</caption>
  <thead><tr><td></td>${cells.map(({ id }) => html`<th scope="col">${id}</th>`)}</tr></thead>
  <tbody>${cells.map(({ id, distances }) => html`<tr><th scope="row">${id}</th>
    ${cells.map((other) => html`<td>${distances?.[other.id] ?? "?"}</td>`)}</tr>`)}</tbody>
</table>`;

// Render the map. workloads: those of the node.
export function NumaMap({ node, workloads }) {
  const boxes = useMemo(() => buildMap(node, workloads ?? []), [node, workloads]);
  const cells = node.numa_topology.cells ?? [];
  return html`<div class="cells">${boxes.map(({ title, cell, cores }) => html`<div class="cell" key=${title}>
      <h3>${title}${cell?.socket != null && html`<span class="quiet"> · socket ${cell.socket}</span>`}</h3>
      ${cores.length > 0 ? html`<${Cpus} title=${title} cores=${cores} />` : quiet("no CPUs")}
      ${cell && memoryOf(cell)}
      ${cell?.networks?.length > 0 && quiet(`Networks: ${cell.networks.join(", ")}`)}
    </div>`)}</div>
    ${legend(Object.entries(STATES).map(([state, text]) => [html`<span class=${`cpu cpu-${state}`}></span>`, text]))}
    ${cells.length > 1 && cells.some(({ distances = {} }) => Object.keys(distances).length > 0) && distancesOf(cells)}`;
}
