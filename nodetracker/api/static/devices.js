// PCI devices as a tree by NUMA cell, with who has them; GPUs.
import { join, memory, plural } from "./format.js";
import { html } from "./preact.js";
import { folded, list, mark, quiet } from "./widgets.js";

const MANY = 8;
const CLASSES = {
  "01": "storage", "02": "network", "03": "display", "04": "multimedia", "06": "bridge",
  "08": "system", "0b": "processor", "0c": "serial bus", "0d": "wireless", 12: "accelerator",
};

// Devices as a list, each with those of all that are its functions.
const listDevices = (devices, all, ownerOf) => list(devices.map((device) => {
  const { address, class_id, vendor_id, product_id, driver, dev_type, status, claim_uuid } = device;
  const functions = all.filter(({ parent_addr }) => parent_addr === address);
  const used = functions.filter((each) => each.claim_uuid).length;
  const below = functions.length > 0 && listDevices(functions, all, ownerOf);
  return html`<code>${address}</code> ${dev_type.replace(/type-|PCI/g, "")} ${CLASSES[class_id.slice(0, 2)] ?? "device"}${" "}
    <span class="quiet">${vendor_id}:${product_id} ${driver}</span> ${mark(status)} ${claim_uuid && html`by ${ownerOf(claim_uuid)}`}
    ${functions.length > MANY ? folded(`${plural(functions.length, "function")}, ${used} in use`, below) : below}`;
}), "tree");

// Devices by their cells, those of no cell last.
function listCells(devices, ownerOf) {
  const addresses = new Set(devices.map(({ address }) => address));
  const roots = devices.filter(({ parent_addr }) => !addresses.has(parent_addr));
  const cells = [...Map.groupBy(roots, ({ numa_node }) => numa_node)].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  return cells.map(([cell, own]) => html`<h3>${cell === null ? "No cell" : `Cell ${cell}`}</h3>${listDevices(own, devices, ownerOf)}`);
}

// The devices that workloads may use, and folded the host's own ones.
// ownerOf(uuid): what has a device, from the uuid of a claim or an unclaimed guest.
export function pciTree(devices, ownerOf) {
  const managed = devices.filter(({ status }) => status !== "unmanaged");
  const kept = new Set(managed.flatMap(({ address, parent_addr }) => [address, parent_addr]));
  const { true: offered, false: others } = Object.groupBy(devices, ({ address }) => kept.has(address));
  return [
    offered ? listCells(offered, ownerOf) : quiet("No device spec offers any to workloads."),
    others && folded(`${plural(others.length, "device")} of the host`, listCells(others, ownerOf)),
  ];
}

export const gpuList = (gpus, devices, ownerOf) => list(gpus.map(({ address, vendor, name, memory_mb, driver_version, numa_node }) => {
  const owner = devices.find((device) => device.address === address)?.claim_uuid;
  const words = [memory_mb > 0 && memory(memory_mb), driver_version && `driver ${driver_version}`, numa_node !== null && `cell ${numa_node}`];
  return html`<strong>${name || vendor}</strong> <code>${address}</code> <span class="quiet">${join(words)}</span>${" "}
    ${owner ? html`used by ${ownerOf(owner)}` : "free"}`;
}), "tree");
