// The NUMA map of a node: a box for each cell with a square for each CPU; threads of a core touch.
import { Bar } from "./bars.js";
import { amount, amountOf, number } from "./format.js";
import { announce } from "./live.js";
import { html, useMemo, useState } from "./preact.js";

const SIZE = 14;
const GAP = 5;
const WIDTH = 300;
const STATES = {
  pinned: "pinned by a workload",
  dedicated: "dedicated, free to be pinned",
  shared: "shared by workloads",
  host: "for the host alone",
  offline: "offline",
};

// Return the numbers of a list such as "0-3,8".
export function parseCpus(text) {
  return (text || "").split(",").filter(Boolean).flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}

// Return numbers as such a list.
export function renderCpus(cpus) {
  const runs = [];
  for (const cpu of [...cpus].sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run && cpu === run[1] + 1) run[1] = cpu;
    else runs.push([cpu, cpu]);
  }
  return runs.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(", ");
}

// Return CPU -> what its workloads do there, from the placements of active claims.
function findUsers(claims, nameOf) {
  const users = new Map();
  const add = (cpu, text) => users.set(cpu, [...(users.get(cpu) ?? []), text]);
  for (const claim of claims) {
    if (claim.state === "released") continue;
    for (const { pins, isolated } of claim.numa?.cells ?? []) {
      for (const [guest, cpu] of Object.entries(pins)) add(cpu, `${nameOf(claim)} (its CPU ${guest})`);
      for (const cpu of isolated) add(cpu, `${nameOf(claim)} (kept free)`);
    }
  }
  return users;
}

// Return the boxes of a node: {id, title, cell, cores}, each core a list of {id, state, users}.
// Every CPU is in one box: that of its cell, or one of those without a cell.
export function buildMap(node, claims, nameOf) {
  const users = findUsers(claims, nameOf);
  const { online, offline, shared, dedicated } = node.cpu_info;
  const sets = {
    offline: new Set(parseCpus(offline)),
    pinned: new Set(),
    dedicated: new Set(parseCpus(dedicated)),
    shared: new Set(parseCpus(shared)),
  };
  const seen = new Set();
  const cells = node.numa_topology.cells ?? [];
  for (const cell of cells) for (const cpu of cell.pinned_cpus) sets.pinned.add(cpu);
  const cpuOf = (id) => {
    seen.add(id);
    const state = Object.keys(sets).find((name) => sets[name].has(id)) ?? "host";
    return { id, state, users: users.get(id) ?? [] };
  };
  const boxes = cells.map((cell) => {
    const cores = cell.siblings.map((group) => [...group]);
    const grouped = new Set(cores.flat());
    for (const id of [...cell.cpuset, ...cell.pcpuset]) if (!grouped.has(id)) cores.push([id]);
    cores.sort(([a], [b]) => a - b);
    return { id: cell.id, title: `Cell ${cell.id}`, cell, cores: cores.map((core) => core.map(cpuOf)) };
  });
  const others = (title, ids) => {
    const cores = ids.filter((id) => !seen.has(id)).map((id) => [cpuOf(id)]);
    if (cores.length > 0) boxes.push({ id: title, title, cell: null, cores });
  };
  others(cells.length > 0 ? "In no cell" : "CPUs", parseCpus(online));
  others("Offline", parseCpus(offline));
  return boxes;
}

// Return the squares of a box, {cpu, x, y}, and its height.
function layOut(cores) {
  const squares = [];
  let x = 0;
  let y = 0;
  for (const core of cores) {
    if (x > 0 && x + core.length * SIZE > WIDTH) {
      x = 0;
      y += SIZE + GAP;
    }
    for (const cpu of core) {
      squares.push({ cpu, x, y });
      x += SIZE;
    }
    x += GAP;
  }
  return { squares, height: y + SIZE };
}

function describe({ id, state, users }) {
  if (state !== "pinned") return `CPU ${id}: ${STATES[state]}`;
  return `CPU ${id}: pinned by ${users.join(", ") || "a guest without a claim"}`;
}

function Square({ cpu, x, y, isCurrent, onPoint }) {
  return html`<g class=${`cpu cpu-${cpu.state}`} data-cpu=${cpu.id} transform=${`translate(${x} ${y})`}
    onPointerEnter=${() => onPoint(cpu)}>
    <rect x=".5" y=".5" width=${SIZE - 1} height=${SIZE - 1} />
    ${cpu.state === "pinned" && html`<circle cx="7" cy="7" r="3" />`}
    ${cpu.state === "dedicated" && html`<circle class="hollow" cx="7" cy="7" r="3" />`}
    ${cpu.state === "offline" && html`<path d="M3 3l8 8M11 3l-8 8" />`}
    ${isCurrent && html`<rect class="current" x="1.5" y="1.5" width=${SIZE - 3} height=${SIZE - 3} />`}
    <title>${describe(cpu)}</title>
  </g>`;
}

// The squares; arrows move from one to the next, the text below says what it is.
function Cpus({ title, cores }) {
  const cpus = cores.flat();
  const [current, setCurrent] = useState(null);
  const { squares, height } = useMemo(() => layOut(cores), [cores]);
  const index = cpus.findIndex(({ id }) => id === current);
  const point = (cpu) => setCurrent(cpu.id);
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const cpu = cpus[Math.min(Math.max(index + step, 0), cpus.length - 1)];
    point(cpu);
    announce(describe(cpu));
  };
  const label = `${title}: ${sumUp(cpus)}. Arrow keys name each CPU.`;
  return html`<svg class="cpus" role="img" tabindex="0" aria-label=${label} onKeyDown=${onKeyDown}
      width=${WIDTH} height=${height} viewBox=${`0 0 ${WIDTH} ${height}`}>
      ${squares.map(({ cpu, x, y }) => html`<${Square} key=${cpu.id} cpu=${cpu} x=${x} y=${y}
        isCurrent=${cpu.id === current} onPoint=${point} />`)}
    </svg>
    <p class="quiet">${index < 0 ? sumUp(cpus) : describe(cpus[index])}</p>`;
}

function sumUp(cpus) {
  const words = Object.keys(STATES).map((state) => {
    const ids = cpus.filter((cpu) => cpu.state === state).map(({ id }) => id);
    return ids.length > 0 && `${state} ${renderCpus(ids)}`;
  });
  return words.filter(Boolean).join("; ") || "no CPUs";
}

const useOf = (total, reserved, claimed) => ({
  total, reserved, claimed, unclaimed: 0, free: total - reserved - claimed, limit: total,
});

function Memory({ cell }) {
  const huge = cell.mempages.slice(1).filter(({ total, used }) => total > 0 || used > 0);
  const used = amountOf("MEMORY_MB", cell.memory_usage, cell.memory);
  return html`<dl class="pages">
    <dt>Memory</dt>
    <dd><${Bar} use=${useOf(cell.memory, 0, cell.memory_usage)} />
      ${cell.memory > 0 ? `${used} placed here` : "none"}</dd>
    ${huge.map(({ size_kb, total, used, reserved }) => html`
      <dt>${amount("MEMORY_MB", size_kb / 1024)} pages</dt>
      <dd><${Bar} use=${useOf(total, reserved, used)} />
        ${number(used)} of ${number(total)} used${reserved > 0 && `, ${number(reserved)} reserved`}</dd>`)}
  </dl>`;
}

function Distances({ cells }) {
  return html`<table class="distances">
    <caption>Distances</caption>
    <thead><tr><td></td>${cells.map(({ id }) => html`<th scope="col">${id}</th>`)}</tr></thead>
    <tbody>${cells.map(({ id, distances = {} }) => html`<tr>
      <th scope="row">${id}</th>
      ${cells.map((other) => html`<td>${distances[other.id] ?? "?"}</td>`)}
    </tr>`)}</tbody>
  </table>`;
}

// Render the map. claims: those of the node; nameOf(claim): the name of its workload.
export function NumaMap({ node, claims, nameOf }) {
  const boxes = useMemo(() => buildMap(node, claims, nameOf), [node, claims, nameOf]);
  const cells = node.numa_topology.cells ?? [];
  return html`<div class="cells">
      ${boxes.map(({ id, title, cell, cores }) => html`<div class="cell" key=${id}>
        <h3>${title}${cell?.socket != null && html`<span class="quiet"> · socket ${cell.socket}</span>`}</h3>
        ${cores.length > 0 ? html`<${Cpus} title=${title} cores=${cores} />` : html`<p class="quiet">no CPUs</p>`}
        ${cell && html`<${Memory} cell=${cell} />`}
        ${cell?.networks?.length > 0 && html`<p class="quiet">Networks: ${cell.networks.join(", ")}</p>`}
      </div>`)}
    </div>
    <ul class="legend">${Object.entries(STATES).map(([state, text]) => html`<li>
      <svg class="key" width="14" height="14" aria-hidden="true"><${Square} cpu=${{ state, users: [] }} x="0" y="0" onPoint=${() => {}} /></svg>
      ${text}</li>`)}</ul>
    ${cells.length > 1 && cells.some(({ distances = {} }) => Object.keys(distances).length > 0) && html`<${Distances} cells=${cells} />`}`;
}
