// PCI devices as a tree by NUMA cell, with who has them; GPUs.
import { amount, plural } from "./format.js";
import { html } from "./preact.js";

const MANY = 8;
const CLASSES = {
  "01": "storage", "02": "network", "03": "display", "04": "multimedia", "06": "bridge",
  "08": "system", "0b": "processor", "0c": "serial bus", "0d": "wireless", 12: "accelerator",
};
const SIGNS = {
  available: ["○", "good"], claimed: ["◐", ""], allocated: ["●", ""], removed: ["▲", "bad"],
};

// Return [{cell, devices}], each device with its functions; those of no cell last.
export function buildTree(devices) {
  const known = new Map(devices.map((device) => [device.address, { ...device, functions: [] }]));
  const roots = [];
  for (const device of known.values()) {
    const parent = known.get(device.parent_addr);
    (parent ? parent.functions : roots).push(device);
  }
  const cells = [...new Set(roots.map(({ numa_node }) => numa_node))];
  cells.sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
  return cells.map((cell) => ({
    cell,
    devices: roots.filter(({ numa_node }) => numa_node === cell),
  }));
}

function Device({ device, ownerOf }) {
  const { address, class_id, vendor_id, product_id, driver, dev_type, status, functions } = device;
  const [sign, level] = SIGNS[status] ?? ["", "quiet"];
  const kind = CLASSES[class_id.slice(0, 2)] ?? "device";
  const used = functions.filter(({ claim_uuid }) => claim_uuid).length;
  const list = html`<ul>${functions.map((each) => html`<${Device} key=${each.address} device=${each} ownerOf=${ownerOf} />`)}</ul>`;
  return html`<li>
    <code>${address}</code> ${dev_type.replace("type-", "").replace("PCI", "")} ${kind}${" "}
    <span class="quiet">${vendor_id}:${product_id}${driver && ` ${driver}`}</span>${" "}
    <span class=${level}><span aria-hidden="true">${sign}</span> ${status}</span>
    ${device.claim_uuid && html` by ${ownerOf(device.claim_uuid)}`}
    ${functions.length > MANY
      ? html`<details><summary>${plural(functions.length, "function")}, ${used} in use</summary>${list}</details>`
      : functions.length > 0 && list}
  </li>`;
}

const Branches = ({ devices, ownerOf }) => buildTree(devices).map(({ cell, devices: own }) => html`
  <h3>${cell === null ? "No cell" : `Cell ${cell}`}</h3>
  <ul class="tree">${own.map((each) => html`<${Device} key=${each.address} device=${each} ownerOf=${ownerOf} />`)}</ul>`);

// Render the devices that workloads may use, and folded the host's own ones.
// ownerOf(uuid): what has a device, from the uuid of a claim or an unclaimed guest.
export function PciTree({ devices, ownerOf }) {
  const isKept = new Set(devices.filter(({ status }) => status !== "unmanaged").flatMap(({ address, parent_addr }) => [address, parent_addr]));
  const offered = devices.filter(({ address }) => isKept.has(address));
  const others = devices.filter(({ address }) => !isKept.has(address));
  return html`
    ${offered.length > 0
      ? html`<${Branches} devices=${offered} ownerOf=${ownerOf} />`
      : html`<p class="quiet">No device spec offers any to workloads.</p>`}
    ${others.length > 0 && html`<details>
      <summary>${plural(others.length, "device")} of the host</summary>
      <${Branches} devices=${others} ownerOf=${ownerOf} />
    </details>`}`;
}

// Render the GPUs of a node.
export function Gpus({ gpus, devices, ownerOf }) {
  const known = new Map(devices.map((device) => [device.address, device]));
  return html`<ul class="tree">${gpus.map(({ address, vendor, name, memory_mb, driver_version, numa_node }) => {
    const owner = known.get(address)?.claim_uuid;
    const words = [
      memory_mb > 0 && amount("MEMORY_MB", memory_mb),
      driver_version && `driver ${driver_version}`,
      numa_node !== null && `cell ${numa_node}`,
    ].filter(Boolean);
    return html`<li key=${address}><strong>${name || vendor}</strong> <code>${address}</code>${" "}
      <span class="quiet">${words.join(", ")}</span> ${owner ? html`used by ${ownerOf(owner)}` : "free"}</li>`;
  })}</ul>`;
}
