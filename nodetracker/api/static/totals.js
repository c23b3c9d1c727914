// The fleet's totals: a bar for each resource, and its numbers in words.
import { Bar, usedOf } from "./bars.js";
import { amount, amountOf, nameOf, number, plural } from "./format.js";
import { html } from "./preact.js";

const ORDER = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"];
const PARTS = ["reserved", "claimed", "unclaimed", "free"];

// Return the resource classes of some amounts that exist, in order.
export const listResources = (amounts) =>
  ORDER.filter((name) => amounts[name] && (amounts[name].limit > 0 || usedOf(amounts[name]) > 0));

function describe(resource, use) {
  const used = usedOf(use);
  const left = use.limit - used;
  return [
    use.limit !== use.total && `capacity ${amount(resource, use.total)}`,
    use.unclaimed > 0 && `${amount(resource, use.unclaimed)} unclaimed`,
    left < 0 ? `${amount(resource, -left)} over` : `${amount(resource, left)} left`,
  ]
    .filter(Boolean)
    .join(", ");
}

function Total({ resource, use }) {
  const used = `${amountOf(resource, usedOf(use), use.limit)} used`;
  const rest = describe(resource, use);
  return html`<div class="total">
    <h2>${nameOf(resource)}</h2>
    <${Bar} use=${use} label=${`${nameOf(resource)}: ${used}, ${rest}`} />
    <p>${used}<br /><span class="quiet">${rest}</span></p>
  </div>`;
}

// Render totals of amounts, with the legend of all bars.
export function Totals({ amounts }) {
  return html`<div class="totals">
      ${listResources(amounts).map((name) => html`<${Total} key=${name} resource=${name} use=${amounts[name]} />`)}
    </div>
    <ul class="legend">
      ${PARTS.map((part) => html`<li><span class=${`swatch swatch-${part}`}></span>${part}</li>`)}
      <li><span class="swatch swatch-mark"></span>capacity</li>
    </ul>`;
}

// Render what runs and what is claimed, in words.
export function Counts({ guests, claims }) {
  const words = [
    plural(guests.instance, "instance"),
    plural(guests.container, "container"),
    `${plural(claims.confirmed, "claim")} confirmed`,
    `${number(claims.held)} held`,
  ];
  return html`<p class="quiet">${words.join(", ")}</p>`;
}
