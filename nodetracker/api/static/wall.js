// The wall: the fleet on a monitor that nobody touches, readable from afar.
import { allocatedOf, bar, clocks, fillOf, html, join, list, mark, quiet, resourceOf, sentence, serverNow, time, useList, usePoll, useUpdates } from "./page.js";
import { useLines } from "./overview.js";
import { Picture } from "./tiles.js";

const CAUSES = 4;
const EVENTS = 4;
const HOUR_MS = 3_600_000;

const minuteOf = (at) => time(at).slice(11, 16);

const share = ([name, use]) => html`<div><span>${resourceOf(name).name}</span><b>${Math.floor(100 * fillOf(use))} %</b>${bar(use)}</div>`;

function event({ at, kind, host, nodename, changes }) {
  return html`<time datetime=${at}>${minuteOf(at)}</time> <bdi>${join([nodename || host, kind], " ")}</bdi>: ${sentence(changes.join("; "))}`;
}

function Fleet({ overview }) {
  const { health: { level, text, causes }, totals } = overview;
  const nodes = useLines(overview);
  const { data: trends } = usePoll("/v1/trends?step=hour", Math.floor(serverNow() / HOUR_MS));
  const { data: happened } = useList("history", { limit: EVENTS });
  const forecasts = Object.values(trends?.forecast ?? {}).filter(Boolean);
  const shown = Object.entries(totals).filter(([, use]) => use.limit > 0 || allocatedOf(use) > 0);
  return html`<p class="state">${mark(text, level)}</p>
    ${list(causes.slice(0, CAUSES).map((cause) => mark(sentence(cause.text), cause.level === "good" ? "disabled" : cause.level)), "causes")}
    <section class="shares" aria-label="Totals">${shown.map(share)}</section>
    <section class="map" aria-label="Map"><${Picture} nodes=${nodes} /></section>
    <section aria-label="Forecast">${list(forecasts.map((found) => sentence(found.text)), "plain")}</section>
    <section aria-label="Last events">${list((happened?.history ?? []).map(event), "plain")}</section>`;
}

// Without an answer the last one stays, grey, with its time: a wall that looks as before would lie.
export function Wall() {
  const { data, error, answeredAt } = usePoll("/v1/overview");
  useUpdates(clocks);
  return html`<h1 class="hidden-text">Wall</h1>
    <p class="clock">${error && html`<span role="alert">${mark(answeredAt ? `No answer since ${minuteOf(answeredAt)}` : "No answer", "bad")}</span>`}
      <time>${minuteOf(serverNow())}</time></p>
    <div class=${`fleet ${error ? "old" : ""}`}>${data ? html`<${Fleet} overview=${data} />` : quiet("Loading…")}</div>`;
}
