// Totals with what they were: a chart of each resource, and when it is full.
import { amount, html, join, legend, list, select, sentence, serverNow, totals, usePoll, useState } from "./page.js";

const HOUR_MS = 3_600_000;
const PERIODS = { // name -> its length in hours, and what its samples are for
  day: { hours: 24, resolution: "hour", step: 1 },
  week: { hours: 168, resolution: "hour", step: 1 },
  month: { hours: 720, resolution: "day", step: 24 },
};
const LATE_MS = 60_000; // by which time the hour is sampled

// Return the path of a line; it is interrupted where samples are missing.
function lineOf(points, values, top) {
  let last = -1;
  return points.map(({ x, index, place }) => {
    const value = values[index];
    if (value === null) return "";
    const isNext = last >= 0 && place - last < 1.5;
    last = place;
    return `${isNext ? "L" : "M"}${x.toFixed(2)} ${(40 - (38 * Math.max(0, value)) / top).toFixed(2)}${isNext ? "" : "h.01"}`;
  }).join("");
}

const range = (resource, values, word) => {
  const known = values.filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)].map((value) => amount(resource, value));
  return known.length > 0 && `${least === most ? "" : `${least} to `}${most} ${word}`;
};

// A chart of a resource in a period; the text says the same to all.
function chart(name, { times, amounts }, period) {
  const { hours, step } = PERIODS[period];
  const end = new Date(times.at(-1)).getTime();
  const points = times.map((at, index) => {
    const age = (end - new Date(at)) / HOUR_MS;
    return { x: 100 - (100 * age) / hours, place: (hours - age) / step, index };
  }).filter(({ x }) => x >= 0);
  const { allocated, measured, limit } = amounts[name];
  const shown = (values) => points.map(({ index }) => values[index]);
  const top = Math.max(...shown(limit), ...shown(allocated), ...shown(measured)) || 1;
  const text = join([range(name, shown(allocated), "allocated"), range(name, shown(measured), "measured")]);
  return html`<svg class="trend" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">
      <path class="limit" d=${lineOf(points, limit, top)} /><path d=${lineOf(points, allocated, top)} /><path class="measured" d=${lineOf(points, measured, top)} />
    </svg>
    <p class="quiet">Last ${period}: ${text}</p>`;
}

const sign = (name, text) => [html`<svg class="trend swatch" viewBox="0 0 10 10" aria-hidden="true"><path class=${name} d="M0 5h10" /></svg>`, text];

// Totals of the fleet or a node, with the trends at a path.
export function TrendTotals({ amounts, measured, path }) {
  const [period, setPeriod] = useState("week");
  const hour = Math.floor((serverNow() - LATE_MS) / HOUR_MS);
  const { data } = usePoll(`${path}?resolution=${PERIODS[period].resolution}`, hour);
  const hasChart = data?.times.length > 1;
  return html`${totals(amounts, (name) => hasChart && data.amounts[name] && chart(name, data, period), measured)}
    ${(hasChart || period !== "week") && html`${legend([sign("", "allocated"), sign("measured", "measured"), sign("limit", "limit")])}
      <div class="filters">${select("Trends of the last", period, Object.keys(PERIODS), setPeriod)}</div>`}
    ${data?.forecasts.length > 0 && list(data.forecasts.map(({ text }) => sentence(text)), "plain")}`;
}
