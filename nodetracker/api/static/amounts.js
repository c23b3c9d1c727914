// Amounts of resources: reserved, claimed, unclaimed and left of the limit.
import { html } from "./preact.js";
import { aside, join, legend, number } from "./widgets.js";

const PARTS = ["reserved", "claimed", "unclaimed"];
const UNITS = ["MiB", "GiB", "TiB", "PiB"];
const RESOURCES = { // that all nodes have, in order
  VCPU: { name: "CPU" },
  PCPU: { name: "Pinned CPU" },
  MEMORY_MB: { name: "Memory", unit: "MiB" },
  DISK_GB: { name: "Disk", unit: "GiB" },
};

export const resourceOf = (name) => RESOURCES[name] ?? { name };

// Return the factor and the unit with which amounts up to a value are shown: 1024 MiB -> GiB.
function scaleOf(resource, value) {
  const first = UNITS.indexOf(resourceOf(resource).unit);
  if (first < 0) return [1, ""];
  const steps = Math.floor(Math.log2(Math.abs(value)) / 10);
  const step = Math.min(Math.max(steps, 0), UNITS.length - 1 - first);
  return [1024 ** step, ` ${UNITS[first + step]}`];
}

export function amount(resource, value) {
  const [factor, unit] = scaleOf(resource, value);
  return number(value / factor, !unit) + unit;
}

export const memory = (mb) => amount("MEMORY_MB", mb);
export const disk = (gb) => amount("DISK_GB", gb);

// Return "12.5 of 64 GiB", or "17 GiB of 4.9 TiB" where the first is small.
export function amountOf(resource, value, whole) {
  const [factor] = scaleOf(resource, whole);
  const isSmall = value > 0 && value < factor && factor > 1;
  return `${isSmall ? amount(resource, value) : number(value / factor)} of ${amount(resource, whole)}`;
}

// Their difference is not always exact.
export const allocatedOf = ({ total, free }) => Math.round((total - free) * 1_024_000) / 1_024_000;

// Return the allocated share of what may be allocated; above 1 it is overcommitted. Reserved of nothing: 1.
export const fillOf = (use) => (use.limit > 0 ? allocatedOf(use) / use.limit : (allocatedOf(use) > 0) + (allocatedOf(use) > use.reserved));

// Shared and pinned CPUs are shown as one: most nodes have only one of them.
export const cpuOf = ({ VCPU, PCPU }) => (PCPU.limit > 0 && (VCPU.limit === 0 || fillOf(PCPU) > fillOf(VCPU)) ? "PCPU" : "VCPU");

// A bar, with a mark where the physical amount ends. Without a label, text beside it says the same.
export function bar(use, label) {
  const whole = Math.max(use.limit, use.total, allocatedOf(use)) || 1;
  const draw = (name, x, width) => width > 0 && html`<rect class=${`part-${name}`} x=${x} width=${width} height="10" />`;
  const { reserved, claimed = use.used, unclaimed = 0 } = use;
  let end = 0;
  const parts = [reserved, claimed, unclaimed].map((value, index) => {
    const width = (100 * Math.max(0, value)) / whole;
    end += width;
    return draw(PARTS[index], end - width, width);
  });
  const isMarked = use.total !== use.limit && use.total > 0;
  return html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role=${label && "img"} aria-label=${label} aria-hidden=${!label}>
    ${parts}${isMarked && draw("mark", (100 * Math.min(use.total, use.limit)) / whole - 0.6, 1.2)}
  </svg>`;
}

function total(resource, use, left, chart, measured) {
  const show = (value) => amount(resource, value);
  const allocated = `${amountOf(resource, allocatedOf(use), use.limit)} allocated`;
  const rest = join([
    use.unclaimed > 0 && `${show(use.unclaimed)} unclaimed`,
    use.limit !== use.total && `physical ${show(use.total)}`,
    left,
  ]);
  const { name } = resourceOf(resource);
  return html`<div class="total" key=${name}><h2>${name}</h2>${bar(use, `${name}: ${allocated}, ${rest}`)}
    <p>${join([allocated, measured?.text])}<br />${aside(rest)}</p>${chart}</div>`;
}

const sample = (part) => html`<span class=${`swatch part-${part}`}></span>`;

// Totals of resources, each with its chart, and the legend of all bars.
export function totals(amounts, left, chartOf, measured = {}) {
  const shown = Object.entries(amounts).filter(([, use]) => use.limit > 0 || allocatedOf(use) > 0);
  return html`<div class="totals">${shown.map(([name, use]) => total(name, use, left[name], chartOf(name), measured[name]))}</div>
    ${legend([...[...PARTS, "left"].map((part) => [sample(part), part]), [sample("mark"), "physical"]])}`;
}
