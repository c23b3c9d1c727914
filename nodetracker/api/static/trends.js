// What totals and nodes were: a chart of each resource, and when it is full; a line of the last day.
import { amount, clocks, html, join, legend, list, request, resourceOf, select, sentence, serverNow, tick, totals, useEffect, usePoll, useRef, useState, useUpdates } from "./page.js";

const HOUR_MS = 3_600_000;
const PERIODS = { // name -> its length in hours, and what its samples are for
  day: [24, "hour"],
  week: [168, "hour"],
  month: [720, "day"],
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
  const [hours, resolution] = PERIODS[period];
  const length = resolution === "day" ? 24 : 1;
  const end = new Date(times.at(-1)).getTime();
  const points = times.map((at, index) => {
    const age = (end - new Date(at)) / HOUR_MS;
    return { x: 100 - (100 * age) / hours, place: (hours - age) / length, index };
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

const sampledHour = () => Math.floor((serverNow() - LATE_MS) / HOUR_MS);

// Totals of the fleet or a node, with the trends at a path.
export function TrendTotals({ amounts, measured, path }) {
  const [period, setPeriod] = useState("week");
  const { data } = usePoll(`${path}?resolution=${PERIODS[period][1]}`, sampledHour());
  const hasChart = data?.times.length > 1;
  return html`${totals(amounts, (name) => hasChart && data.amounts[name] && chart(name, data, period), measured)}
    ${(hasChart || period !== "week") && html`<div class="filters">${select("Trends of the last", period, Object.keys(PERIODS), setPeriod)}
      ${legend([sign("", "allocated"), sign("measured", "measured"), sign("limit", "limit")])}</div>`}
    ${data?.forecasts.length > 0 && list(data.forecasts.map(({ text }) => sentence(text)), "plain")}`;
}

const MOST = 100; // nodes in a request
const WAIT_MS = 100; // for others that come into view
const days = {}; // resource and uuid -> a node's last day, if it is known, as of an hour
const waiting = []; // uuids

async function readDays(resource, hour) {
  const uuids = waiting.splice(0).slice(-MOST);
  const { data } = await request(`/v1/trends/nodes?${new URLSearchParams([["resource", resource], ...uuids.map((uuid) => ["node", uuid])])}`);
  for (const uuid of uuids) days[resource + uuid] = { hour, ...data?.nodes.find((node) => node.uuid === uuid) };
  tick();
}

// A line of what a node had allocated of a resource in its last day; asked for once it is seen, and then once an hour.
export function DayLine({ uuid, resource }) {
  const box = useRef(null);
  const hour = sampledHour();
  useUpdates(clocks);
  useEffect(() => {
    if (days[resource + uuid]?.hour === hour) return undefined;
    const observer = new IntersectionObserver((entries) => {
      if (!entries.at(-1).isIntersecting) return;
      observer.disconnect();
      if (waiting.push(uuid) === 1) setTimeout(readDays, WAIT_MS, resource, hour);
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [uuid, resource, hour]);
  const { percents, text } = days[resource + uuid] ?? {};
  const label = text && `${resourceOf(resource).name} over 24 hours: ${text}`;
  return html`<span class="day" ref=${box} role=${text && "img"} aria-label=${label} title=${label}>${percents && html`
    <svg class="trend" viewBox="0 0 23 40" preserveAspectRatio="none" aria-hidden="true">
      <path d=${lineOf(percents.map((_, index) => ({ x: index, place: index, index })), percents, Math.max(100, ...percents))} />
    </svg>`}</span>`;
}
