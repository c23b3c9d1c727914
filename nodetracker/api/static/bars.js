// Bars of one resource: reserved, claimed, unclaimed and free, with a mark where capacity ends.
import { html } from "./preact.js";

const PARTS = ["reserved", "claimed", "unclaimed"];

// Return what is used of a resource: everything that is not free.
export const usedOf = (use) => use.total - use.free;

// Return the used share of what may be used; above 1 it is overcommitted beyond its ratio.
export function fillOf(use) {
  const used = usedOf(use);
  return use.limit > 0 ? used / use.limit : Number(used > 0);
}

// Render a bar. Without a label, the text beside it has to say the same.
export function Bar({ use, label }) {
  const whole = Math.max(use.limit, use.total, usedOf(use)) || 1;
  const share = (value) => (100 * value) / whole;
  let x = 0;
  const parts = PARTS.map((name) => {
    const width = share(Math.max(0, use[name]));
    x += width;
    return width > 0 && html`<rect class=${`bar-${name}`} x=${x - width} width=${width} height="10" />`;
  });
  const mark = Math.min(use.total, use.limit);
  const isMarked = use.total !== use.limit && use.total > 0;
  const access = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" ...${access}>
    ${parts}${isMarked && html`<rect class="bar-mark" x=${share(mark) - 0.6} width="1.2" height="10" />`}
  </svg>`;
}
