// Amounts of resources: reserved, claimed, unclaimed and left of the limit.
import { html } from "./preact.js";
import { help, join, legend, number } from "./widgets.js";

const PARTS = { reserved: "dots", claimed: "", unclaimed: "hatch" }; // with the texture of each
const UNITS = ["MiB", "GiB", "TiB", "PiB", "EiB"];
const RESOURCES = { // that all nodes have, in order; first: the index of their unit
  VCPU: { name: "CPU" },
  PCPU: { name: "Pinned CPU" },
  MEMORY_MB: { name: "Memory", first: 0 },
  "MEMORY_MB outside huge pages": { name: "Memory outside huge pages", first: 0 },
  DISK_GB: { name: "Disk", first: 1 },
};

export const resourceOf = (name) => RESOURCES[name] ?? { name };

// Return the index of the largest unit that leaves three digits, and a requested amount exact.
function unitOf(mib, role) {
  let unit = 0;
  while (unit < UNITS.length - 1 && Math.abs(mib) / 1024 ** unit >= 999.5) unit += 1;
  if (role === "requested") while (unit > 0 && (mib * 1000) % 1024 ** unit !== 0) unit -= 1;
  return unit;
}

// Return an amount with its unit, as nodetracker/views/values.py does. By its role one that is "free" is rounded
// down and one that is "requested" exact; others get the unit of [value, role] beside them, unless they are small.
export function amount(resource, value, role = "used", beside = undefined) {
  if (value === null) return "unlimited";
  const { first } = resourceOf(resource);
  if (first === undefined || !value) return number(value, role);
  const scale = 1024 ** first;
  let unit = unitOf(value * scale, role);
  if (beside && role !== "requested") {
    const other = unitOf(beside[0] * scale, beside[1]);
    if ((Math.abs(value) * scale) / 1024 ** other >= 0.1) unit = other;
  }
  return `${number((value * scale) / 1024 ** unit, role)} ${UNITS[unit]}`;
}

export const memory = (mb) => amount("MEMORY_MB", mb);
export const disk = (gb) => amount("DISK_GB", gb);

// Return "12.5 of 64 GiB", or "17 GiB of 4.9 TiB" where the first is small.
export function amountOf(resource, value, whole) {
  const of = amount(resource, whole);
  const [text, unit] = amount(resource, value, "used", [whole, "used"]).split(" ");
  return `${text}${unit && !of.endsWith(unit) ? ` ${unit}` : ""} of ${of}`;
}

// Their difference is not always exact.
export const allocatedOf = ({ total, free }) => Math.round((total - free) * 1_024_000) / 1_024_000;

// Return the allocated share of what may be allocated; above 1 it is overcommitted. Reserved of nothing: 1.
export const fillOf = (use) => (use.limit > 0 ? allocatedOf(use) / use.limit : (allocatedOf(use) > 0) + (allocatedOf(use) > use.reserved));

// Shared and pinned CPUs are shown as one: most nodes have only one of them.
export const cpuOf = ({ VCPU, PCPU }) => (PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU");

export const STEPS = [[0, "below 25 %"], [0.25, "25–49 %"], [0.5, "50–74 %"], [0.75, "75–89 %"], [0.9, "90 % and more"], [1, "beyond the limit"]];

// Return the step of a share that is allocated, which has one colour everywhere.
export const stepOf = (fill) => STEPS.findLastIndex(([least], step) => step === 0 || (step === STEPS.length - 1 ? fill > least : fill >= least));

const rect = (look, x, width) => width > 0 && html`<rect class=${look} x=${`${x}%`} width=${`${width}%`} height="100%" />`;

// A bar, with a mark where the physical amount ends: its colour is how full it is, its textures are the parts. Without a label, text beside it says the same.
export function bar(use, label) {
  const whole = Math.max(use.limit, use.total, allocatedOf(use)) || 1;
  const { reserved, claimed = use.used, unclaimed = 0 } = use;
  let end = 0;
  const parts = Object.entries({ reserved, claimed, unclaimed }).map(([part, value]) => {
    const width = (100 * Math.max(0, value)) / whole;
    end += width;
    return [rect("part", end - width, width), PARTS[part] && rect(PARTS[part], end - width, width)];
  });
  const isMarked = use.total !== use.limit && use.total > 0;
  return html`<svg class=${`bar fill-${Math.max(3, stepOf(fillOf(use)))}`} role=${label && "img"} aria-label=${label} aria-hidden=${!label}>
    ${parts}${isMarked && rect("mark", (100 * Math.min(use.total, use.limit)) / whole - 0.6, 1.2)}
  </svg>`;
}

// A thin bar of what the machines measure of the physical amount.
const inUse = ({ percent }) => html`<svg class="bar in-use" aria-hidden="true">${rect("mark", 0, Math.min(100, percent))}</svg>`;

function total(resource, use, left, chart, measured) {
  const show = (value) => amount(resource, value, "used", [use.limit, "used"]);
  const allocated = `${amountOf(resource, allocatedOf(use), use.limit)} allocated`;
  const rest = join([
    left,
    use.unclaimed > 0 && `${show(use.unclaimed)} unclaimed`,
    use.limit !== use.total && `physical ${show(use.total)}`,
  ]);
  const { name } = resourceOf(resource);
  return html`<div class="total" key=${name}><h2>${name}</h2>${bar(use, `${name}: ${allocated}, ${rest}`)}${measured && inUse(measured)}
    <p title=${measured?.text}>${join([allocated, measured?.text])}</p><p class="quiet" title=${rest}>${rest}</p>${chart}</div>`;
}

export const sample = (look, texture) => html`<svg class=${`swatch ${look}`} aria-hidden="true"><rect class="part" width="100%" height="100%" />${texture && html`<rect class=${texture} width="100%" height="100%" />`}</svg>`;

const LEGEND = [
  ...Object.entries(PARTS).map(([part, texture]) => [sample("fill-3", texture), part]),
  [sample("fill-3"), "below 90 % of the limit"], [sample("fill-4"), "90 % and more"], [sample("fill-5"), "beyond the limit"],
  [html`<span class="swatch mark-line"></span>`, "end of the physical amount"], [html`<span class="swatch use-line"></span>`, "in use, as measured"],
];

// Totals of resources, each with its chart; what the bars mean is behind a button.
export function totals(amounts, left, chartOf, measured = {}) {
  const shown = Object.entries(amounts).filter(([, use]) => use.limit > 0 || allocatedOf(use) > 0);
  return html`<div class="totals">${shown.map(([name, use]) => total(name, use, left[name], chartOf(name), measured[name]))}
    ${help("bars", "What the bars mean", legend(LEGEND))}</div>`;
}
