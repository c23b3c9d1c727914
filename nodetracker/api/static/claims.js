// The claims of a node: a table with a timeline.
import { age, time } from "./format.js";
import { html, useMemo } from "./preact.js";
import { column, Table } from "./table.js";
import { serverNow } from "./widgets.js";
import { AMOUNTS, NAME } from "./workloads.js";

const RELEASED = 50; // claims that are shown beside the active ones
const WIDTH = 1000;
const HOUR = 3_600_000;

// Return the active claims of a node and some released ones, newest first, with uuid and name of their workloads.
export function useClaims(usePart) {
  const active = usePart("claims?sort_dir=desc&state=held&state=confirmed");
  const released = usePart(`claims?sort_dir=desc&state=released&limit=${RELEASED}`);
  return useMemo(
    () => [...(active?.claims ?? []), ...(released?.claims ?? [])]
      .map((claim) => ({ ...claim, id: claim.uuid, uuid: claim.workload_uuid, name: claim.workload_name || claim.workload_uuid }))
      .sort((a, b) => b.created_at.localeCompare(a.created_at)),
    [active, released],
  );
}

// Return the period that is shown: the newer half of the claims, at least an hour, and until held ones expire.
function periodOf(claims, now) {
  const times = (ofClaim) => claims.map(ofClaim).filter(Boolean).map(Date.parse);
  const first = times(({ created_at }) => created_at)[claims.length >> 1] ?? now;
  const last = Math.max(now, ...times(({ expires_at }) => expires_at));
  return [Math.min(now - HOUR, first), last + (last - now) / 20];
}

// The bar of a claim: held hatched, confirmed full, released open-ended.
function span({ state, created_at, updated_at, expires_at }, [first, last], now) {
  const place = (at) => ((at - first) / (last - first)) * WIDTH;
  const x = Math.max(0, place(Date.parse(created_at)));
  const right = Math.max(x + 4, place(state === "released" ? Date.parse(updated_at) : now));
  const draw = (d, name) => html`<path class=${name} d=${d} />`;
  return html`<svg class=${`span span-${state}`} viewBox=${`0 0 ${WIDTH} 20`} preserveAspectRatio="none" aria-hidden="true">
    ${draw(`M${right} 4H${x}V16H${right}${state === "released" ? "" : "Z"}`)}
    ${state === "held" && draw(`M${x} 10H${right}`, "hatch")}
    ${state === "held" && expires_at && draw(`M${place(Date.parse(expires_at))} 0V20`, "expiry")}
  </svg>`;
}

function stateOf({ state, reason, expires_at }, now) {
  if (state === "released") return `released: ${reason}`;
  if (state !== "held" || !expires_at) return state;
  const left = (Date.parse(expires_at) - now) / 1000;
  return left > 0 ? `held, expires in ${age(left)}` : "held, expired";
}

// Render claims, each with a button, if any.
export function Claims({ claims, actionOf }) {
  const now = serverNow();
  const period = periodOf(claims, now);
  const columns = [
    NAME,
    column("state", "State", (_, claim) => `${stateOf(claim, now)}${claim.kind === "move" ? ", move" : ""}`),
    column("created_at", "Since", time),
    column("span", `${time(period[0])} to ${period[1] > now ? time(period[1]) : "now"}`, (_, claim) => span(claim, period, now)),
    ...AMOUNTS,
    ...(actionOf ? [column("action", "Action", (_, claim) => actionOf(claim))] : []),
  ];
  return html`<div class="claims"><${Table} isFixed caption="Claims, newest first" columns=${columns} rows=${claims}
    empty="No claim yet." /></div>`;
}
