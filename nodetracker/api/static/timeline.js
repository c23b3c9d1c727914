// The claims of a node: a table with a timeline.
import { serverNow } from "./ago.js";
import { age, amount, time } from "./format.js";
import { html } from "./preact.js";
import { Table } from "./table.js";
import { cpusOf } from "./workloads.js";

const WIDTH = 1000;
const HOUR = 3_600_000;
const SPANS = [HOUR / 6, HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR];

// Return the period that is shown, in ms: the shortest span since when half of the claims were
// made, and what active claims still have before they expire.
export function periodOf(claims, now) {
  const starts = claims.map(({ created_at }) => Date.parse(created_at));
  const expiries = claims.map(({ expires_at }) => Date.parse(expires_at ?? 0));
  const since = SPANS.find((span) => starts.filter((at) => at >= now - span).length * 2 >= starts.length);
  const last = Math.max(now, ...expiries);
  return [since ? now - since : Math.min(now - HOUR, ...starts), last + (last - now) / 20];
}

// Return the bar of a claim: {x, width, expiry, isCut}, where the period is 1000 wide.
export function barOf(claim, [first, last], now) {
  const place = (at) => ((at - first) / (last - first)) * WIDTH;
  const start = Date.parse(claim.created_at);
  const end = claim.state === "released" ? Date.parse(claim.updated_at) : now;
  const x = Math.max(0, place(start));
  return {
    x,
    width: Math.max(4, place(end) - x),
    expiry: claim.expires_at && claim.state === "held" ? place(Date.parse(claim.expires_at)) : null,
    isCut: start < first,
  };
}

function Span({ claim, period, now }) {
  const { x, width, expiry, isCut } = barOf(claim, period, now);
  const right = x + width;
  const isOpen = claim.state === "released";
  return html`<svg class=${`span span-${claim.state}`} viewBox=${`0 0 ${WIDTH} 20`} preserveAspectRatio="none" aria-hidden="true">
    ${isOpen
      ? html`<path d=${`M${right} 4H${x}V16H${right}`} />`
      : html`<rect x=${x} y="4" width=${width} height="12" />`}
    ${claim.state === "held" && html`<path class="hatch" d=${hatch(x, right)} />`}
    ${isCut && html`<path class="cut" d="M14 2L2 10L14 18" />`}
    ${expiry !== null && html`<path class="expiry" d=${`M${expiry} 0V20`} />`}
  </svg>`;
}

function hatch(x, right) {
  let path = "";
  for (let at = x + 4; at < right - 4; at += 14) path += `M${at} 16L${Math.min(at + 8, right)} 4`;
  return path;
}

const stateOf = ({ state, reason, expires_at }, now) => {
  if (state === "released") return `released: ${reason}`;
  if (state !== "held" || !expires_at) return state;
  const left = (Date.parse(expires_at) - now) / 1000;
  return left > 0 ? `held, expires in ${age(left)}` : "held, expired";
};

// Render claims. ownerOf(uuid, claim): the workload; actions(claim): buttons, or null for none.
export function Timeline({ claims, ownerOf, actions }) {
  const now = serverNow();
  const period = periodOf(claims, now);
  const ends = `${time(period[0])} to ${period[1] > now ? time(period[1]) : "now"}`;
  const column = (id, title, cell, more) => ({ id: `claim-${id}`, title, cell, isFixed: true, ...more });
  const isNumeric = true;
  const columns = [
    column("owner", "Workload", (claim) => ownerOf(claim.uuid, claim)),
    column("state", "State", (claim) => `${stateOf(claim, now)}${claim.kind === "move" ? ", move" : ""}`),
    column("since", "Since", ({ created_at }) => time(created_at)),
    column("span", ends, (claim) => html`<${Span} claim=${claim} period=${period} now=${now} />`),
    column("cpus", "CPUs", cpusOf, { isNumeric }),
    column("memory", "Memory", ({ memory_mb }) => amount("MEMORY_MB", memory_mb), { isNumeric }),
    column("disk", "Disk", ({ disk_gb }) => amount("DISK_GB", disk_gb), { isNumeric }),
    ...(actions ? [column("action", "Action", actions)] : []),
  ];
  return html`<div class="claims"><${Table} caption="Claims, newest first" columns=${columns} rows=${claims} keyOf=${({ uuid }) => uuid} /></div>`;
}
