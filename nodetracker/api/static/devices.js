// PCI devices as a tree by NUMA cell, with who has them; GPUs.
import { join, memory, plural } from "./format.js";
import { html } from "./preact.js";
import { Mark } from "./widgets.js";

const MANY = 8;
const CLASSES = {
  "01": "storage", "02": "network", "03": "display", "04": "multimedia", "06": "bridge",
  "08": "system", "0b": "processor", "0c": "serial bus", "0d": "wireless", 12: "accelerator",
};

// Render devices as a list, each with its functions. ownerOf(uuid): see PciTree.
function List({ devices, all, ownerOf }) {
  return html`<ul class="tree">${devices.map((device) => {
    const { address, class_id, vendor_id, product_id, driver, dev_type, status, claim_uuid } = device;
    const functions = all.filter(({ parent_addr }) => parent_addr === address);
    const used = functions.filter((each) => each.claim_uuid).length;
    const list = functions.length > 0 && html`<${List} devices=${functions} all=${all} ownerOf=${ownerOf} />`;
    return html`<li key=${address}>
      <code>${address}</code> ${dev_type.replace("type-", "").replace("PCI", "")} ${CLASSES[class_id.slice(0, 2)] ?? "device"}${" "}
      <span class="quiet">${join([`${vendor_id}:${product_id}`, driver], " ")}</span> <${Mark} word=${status} />
      ${claim_uuid && html`by ${ownerOf(claim_uuid)}`}
      ${functions.length > MANY
        ? html`<details><summary>${plural(functions.length, "function")}, ${used} in use</summary>${list}</details>`
        : list}
    </li>`;
  })}</ul>`;
}

// Render devices by their cells, those of no cell last.
function Cells({ devices, ownerOf }) {
  const addresses = new Set(devices.map(({ address }) => address));
  const roots = devices.filter(({ parent_addr }) => !addresses.has(parent_addr));
  const cells = [...Map.groupBy(roots, ({ numa_node }) => numa_node)].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  return cells.map(([cell, own]) => html`<h3>${cell === null ? "No cell" : `Cell ${cell}`}</h3>
    <${List} devices=${own} all=${devices} ownerOf=${ownerOf} />`);
}

// Render the devices that workloads may use, and folded the host's own ones.
// ownerOf(uuid): what has a device, from the uuid of a claim or an unclaimed guest.
export function PciTree({ devices, ownerOf }) {
  const managed = devices.filter(({ status }) => status !== "unmanaged");
  const kept = new Set(managed.flatMap(({ address, parent_addr }) => [address, parent_addr]));
  const { true: offered, false: others } = Object.groupBy(devices, ({ address }) => kept.has(address));
  return html`
    ${offered ? html`<${Cells} devices=${offered} ownerOf=${ownerOf} />` : html`<p class="quiet">No device spec offers any to workloads.</p>`}
    ${others && html`<details><summary>${plural(others.length, "device")} of the host</summary>
      <${Cells} devices=${others} ownerOf=${ownerOf} /></details>`}`;
}

// Render the GPUs of a node.
export const Gpus = ({ gpus, devices, ownerOf }) => html`<ul class="tree">
  ${gpus.map(({ address, vendor, name, memory_mb, driver_version, numa_node }) => {
    const owner = devices.find((device) => device.address === address)?.claim_uuid;
    const words = [memory_mb > 0 && memory(memory_mb), driver_version && `driver ${driver_version}`, numa_node !== null && `cell ${numa_node}`];
    return html`<li key=${address}><strong>${name || vendor}</strong> <code>${address}</code>${" "}
      <span class="quiet">${join(words)}</span> ${owner ? html`used by ${ownerOf(owner)}` : "free"}</li>`;
  })}</ul>`;
