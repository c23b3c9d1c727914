// What a node is made of: a box for each NUMA cell with a square for each CPU, PCI devices, GPUs.
import { bar, folded, html, legend, list, mark, quiet, step, useState } from "./page.js";
import { workloadLink } from "./workloads.js";

const USES = ["pinned", "dedicated", "shared", "host", "offline"];
const MANY = 8;

// The squares, of which the threads of a core touch, as a list: arrows move from one to the next. The text below says what it is.
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

export function numaMap(boxes) {
  const cells = boxes.filter(({ id }) => id !== null);
  return html`<div class="cells">${boxes.map((box) => html`<div class="cell" key=${box.title}>
      <h3>${box.title} <span class="quiet">${box.notes}</span></h3>
      ${box.cores.length > 0 ? html`<${Cpus} ...${box} />` : quiet(box.summary)}
      <dl class="pages">${box.memory.map(({ title, text, use }) => html`<dt>${title}</dt><dd>${bar(use)}${text}</dd>`)}</dl>
    </div>`)}</div>
    ${legend(USES.map((use) => [html`<span class=${`cpu cpu-${use}`}></span>`, use]))}
    ${cells.length > 1 && cells[0].distances.some(Boolean) && distances(cells)}`;
}

const ownerOf = (owner, word = "") => owner && html` ${word} ${workloadLink(owner)}`;

const listDevices = (devices) => list(devices.map(({ address, kind, notes, status, owner, summary, functions }) => {
  const below = functions.length > 0 && listDevices(functions);
  return html`<code>${address}</code> ${kind} <span class="quiet">${notes}</span> ${mark(status)}${ownerOf(owner, "by")}
    ${functions.length > MANY ? folded(summary, below) : below}`;
}), "tree");

const listCells = (cells) => cells.map(({ title, devices }) => html`<h3>${title}</h3>${listDevices(devices)}`);

// The devices for workloads as a tree by cell, and folded the host's own ones; false without any.
export const pciTree = ({ devices, host_devices: others }) => devices.length + others.length > 0 && [
  devices.length > 0 ? listCells(devices) : quiet("No device spec offers any to workloads."),
  others.length > 0 && folded("Devices of the host", listCells(others)),
];

export const gpuList = (gpus) => list(gpus.map(({ address, name, notes, owner }) => html`<strong>${name}</strong> <code>${address}</code>${" "}
  <span class="quiet">${notes}</span>${ownerOf(owner, "used by") ?? " free"}`), "tree");
