// The claims of a node: a table with a timeline.
import { usePoll } from "./api.js";
import { age, time } from "./format.js";
import { html, useMemo } from "./preact.js";
import { column, Table } from "./table.js";
import { serverNow } from "./widgets.js";
import { AMOUNTS } from "./workloads.js";

const RELEASED = 50; // claims that are shown beside the active ones
const WIDTH = 1000;
const HOUR = 3_600_000;
const SPANS = [HOUR / 6, HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR];

// Return the node's claims, newest first: the active ones, and some that were released.
export function useClaims(path, generation) {
  const active = usePoll(`${path}/claims?sort_dir=desc&state=held&state=confirmed`, generation).data;
  const released = usePoll(`${path}/claims?sort_dir=desc&state=released&limit=${RELEASED}`, generation).data;
  return useMemo(
    () => [...(active?.claims ?? []), ...(released?.claims ?? [])].sort((a, b) => b.created_at.localeCompare(a.created_at)),
    [active, released],
  );
}

// Return the period that is shown: at least half of the claims, and when held ones expire.
function periodOf(claims, now) {
  const starts = claims.map(({ created_at }) => Date.parse(created_at));
  const since = SPANS.find((span) => starts.filter((at) => at >= now - span).length * 2 >= starts.length);
  const last = Math.max(now, ...claims.map(({ expires_at }) => Date.parse(expires_at ?? 0)));
  return [since ? now - since : Math.min(now - HOUR, ...starts), last + (last - now) / 20];
}

// The bar of a claim: held hatched, confirmed full, released open-ended.
function span({ state, created_at, updated_at, expires_at }, [first, last], now) {
  const place = (at) => ((at - first) / (last - first)) * WIDTH;
  const start = Date.parse(created_at);
  const x = Math.max(0, place(start));
  const width = Math.max(4, place(state === "released" ? Date.parse(updated_at) : now) - x);
  const right = x + width;
  return html`<svg class=${`span span-${state}`} viewBox=${`0 0 ${WIDTH} 20`} preserveAspectRatio="none" aria-hidden="true">
    ${state === "released"
      ? html`<path d=${`M${right} 4H${x}V16H${right}`} />`
      : html`<rect x=${x} y="4" width=${width} height="12" />`}
    ${state === "held" && html`<path class="hatch" d=${`M${x} 10H${right}`} />
      ${expires_at && html`<path class="expiry" d=${`M${place(Date.parse(expires_at))} 0V20`} />`}`}
    ${start < first && html`<path class="cut" d="M14 2L2 10L14 18" />`}
  </svg>`;
}

function stateOf({ state, reason, expires_at }, now) {
  if (state === "released") return `released: ${reason}`;
  if (state !== "held" || !expires_at) return state;
  const left = (Date.parse(expires_at) - now) / 1000;
  return left > 0 ? `held, expires in ${age(left)}` : "held, expired";
}

// Render claims, each with a link to its owner and a button, if any.
export function Claims({ claims, ownerOf, actionOf }) {
  const now = serverNow();
  const period = periodOf(claims, now);
  const columns = [
    column("owner", "Workload", (_, claim) => ownerOf(claim)),
    column("state", "State", (_, claim) => `${stateOf(claim, now)}${claim.kind === "move" ? ", move" : ""}`),
    column("created_at", "Since", time),
    column("span", `${time(period[0])} to ${period[1] > now ? time(period[1]) : "now"}`, (_, claim) => span(claim, period, now)),
    ...AMOUNTS,
    ...(actionOf ? [column("action", "Action", (_, claim) => actionOf(claim))] : []),
  ];
  return html`<div class="claims"><${Table} isFixed caption="Claims, newest first" columns=${columns} rows=${claims}
    empty="No claim yet." /></div>`;
}
