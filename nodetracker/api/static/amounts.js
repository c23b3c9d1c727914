// Amounts of resources: reserved, claimed, unclaimed and free, and what may be used, the limit.
import { amount, amountOf, join, RESOURCES } from "./format.js";
import { html } from "./preact.js";
import { legend } from "./widgets.js";

const PARTS = ["reserved", "claimed", "unclaimed"];

export const usedOf = ({ total, free }) => total - free;

// Return the used share of what may be used; above 1 it is overcommitted beyond its ratio.
export const fillOf = (use) => (use.limit > 0 ? usedOf(use) / use.limit : Number(usedOf(use) > 0));

export const listResources = (amounts) =>
  Object.keys(RESOURCES).filter((name) => amounts[name].limit > 0 || usedOf(amounts[name]) > 0);

// A bar, with a mark where capacity ends. Without a label, the text beside it has to say the same.
export function bar(use, label) {
  const whole = Math.max(use.limit, use.total, usedOf(use)) || 1;
  const draw = (name, x, width) => html`<rect class=${`part-${name}`} x=${x} width=${width} height="10" />`;
  let x = 0;
  const parts = PARTS.map((name) => {
    const width = (100 * Math.max(0, use[name] ?? 0)) / whole;
    x += width;
    return width > 0 && draw(name, x - width, width);
  });
  const isMarked = use.total !== use.limit && use.total > 0;
  return html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role=${label && "img"} aria-label=${label} aria-hidden=${!label}>
    ${parts}${isMarked && draw("mark", (100 * Math.min(use.total, use.limit)) / whole - 0.6, 1.2)}
  </svg>`;
}

function total(resource, use) {
  const show = (value) => amount(resource, value);
  const left = use.limit - usedOf(use);
  const used = `${amountOf(resource, usedOf(use), use.limit)} used`;
  const rest = join([
    use.limit !== use.total && `capacity ${show(use.total)}`,
    use.unclaimed > 0 && `${show(use.unclaimed)} unclaimed`,
    left < 0 ? `${show(-left)} over` : `${show(left)} left`,
  ]);
  const { name } = RESOURCES[resource];
  return html`<div class="total" key=${name}><h2>${name}</h2>${bar(use, `${name}: ${used}, ${rest}`)}
    <p>${used}<br /><span class="quiet">${rest}</span></p></div>`;
}

const sample = (part) => html`<span class=${`swatch part-${part}`}></span>`;

// Totals of amounts, with the legend of all bars.
export const totals = (amounts) => html`<div class="totals">${listResources(amounts).map((name) => total(name, amounts[name]))}</div>
  ${legend([...[...PARTS, "free"].map((part) => [sample(part), part]), [sample("mark"), "capacity"]])}`;
