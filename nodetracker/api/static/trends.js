// What totals and nodes were: a chart of each resource, and when it is full; a line of the last day.
import { amount, button, clocks, html, isOutage, join, legend, list, quiet, request, resourceOf, select, sentence, serverNow, tick, totals, useEffect, useList, useMemo, usePoll, useRef, useState, useUpdates } from "./page.js";

const STEPS = { hour: 3_600_000, day: 86_400_000 }; // ms
const PERIODS = { day: [24, "hour"], week: [168, "hour"], month: [30, "day"], quarter: [90, "day"] }; // name -> samples
const EVENTS = 200; // that are looked at
const LATE_MS = 60_000; // by which time the hour is sampled

// Return the path of what points have under a key, interrupted where some are missing.
function lineOf(points, key, top, width = 1) {
  let last = -1;
  return points.map(({ place, [key]: value }) => {
    if (value === null) return "";
    const isNext = last >= 0 && place - last < 1.5;
    last = place;
    return `${isNext ? "L" : "M"}${(place * width).toFixed(2)} ${(40 - (38 * Math.max(0, value)) / top).toFixed(2)}${isNext ? "" : "h.01"}`;
  }).join("");
}

const WORDS = { promised: "allocated", measured: "measured", capacity: "limit" };
const KEYS = Object.keys(WORDS);
const keyOf = (resource) => resourceOf(resource).name.toLowerCase();

// A chart of a period, and the same in words.
function chart(resource, samples, period) {
  const [count, step] = PERIODS[period];
  const end = new Date(samples.at(-1).at).getTime();
  const points = samples.map(({ at, [keyOf(resource)]: amounts }) => (
    { ...amounts, place: count - (end - new Date(at)) / STEPS[step] })).filter(({ place }) => place >= 0);
  const valuesOf = (key) => points.map((point) => point[key]);
  const range = (key) => {
    const known = valuesOf(key).filter((value) => value !== null);
    const [least, most] = [Math.min(...known), Math.max(...known)].map((value) => amount(resource, value));
    return known.length > 0 && `${least === most ? "" : `${least} to `}${most} ${WORDS[key]}`;
  };
  const top = Math.max(...KEYS.flatMap(valuesOf)) || 1;
  const line = (key) => html`<path class=${key} d=${lineOf(points, key, top, 100 / count)} />`;
  const text = join(["promised", "measured"].map(range));
  return html`<svg class="trend" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">
      ${KEYS.map(line)}
    </svg>
    <p class="quiet">Last ${period}: ${text}</p>`;
}

const sign = (key) => [html`<svg class="trend swatch" viewBox="0 0 10 10" aria-hidden="true"><path class=${key} d="M0 5h10" /></svg>`, WORDS[key]];

const sampledHour = () => Math.floor((serverNow() - LATE_MS) / STEPS.hour);

const AGENT = "nodetracker-compute";
const TURNS = ["stopped", "down", "started", "up"];
const NOTED = ["disabled", "maintenance", "forced_down", "kernel_version"]; // what marks of events are about

// Charts of samples, whose code is loaded now, with the events of the fleet or a node.
function OpenCharts({ samples, forecast, period, place }) {
  const [count, step] = PERIODS[period];
  const [charts, setCharts] = useState({});
  const since = new Date(new Date(samples.at(-1).at) - count * STEPS[step]).toISOString();
  const { history: services = [] } = useList("history", { kind: "service", since, host: place?.host, limit: EVENTS }, 0).data ?? {};
  const { history: changes = [] } = useList("history", { kind: place ? "node" : "service", since, ...(place ?? { host: undefined }), limit: EVENTS }, 0).data ?? {};
  const events = useMemo(() => [...services.filter(({ diff }) => diff.binary === AGENT), ...changes.filter(({ kind }) => kind === "node")]
    .filter(({ diff }) => TURNS.includes(diff.event) || NOTED.some((name) => name in diff)).reverse().sort((a, b) => a.at.localeCompare(b.at)), [services, changes]);
  useEffect(() => {
    import("./charts.js").then(setCharts);
  }, []);
  return charts.Charts ? html`<${charts.Charts} samples=${samples} forecast=${forecast} events=${events} step=${STEPS[step] / 1000} length=${(count * STEPS[step]) / 1000} />` : quiet("Loading charts…");
}

// Totals of the fleet or a node {host, nodename}, with the trends at a path; what is down gets no fuller.
export function TrendTotals({ amounts, left, measured, path, place, isDown }) {
  const [period, setPeriod] = useState("week");
  const [isOpen, setOpen] = useState(false);
  const { data } = usePoll(`${path}?step=${PERIODS[period][1]}`, sampledHour());
  const hasChart = data?.samples.length > 1;
  return html`${totals(amounts, left, (name) => hasChart && data.samples[0][keyOf(name)] && chart(name, data.samples, period), measured)}
    ${(hasChart || period !== "week") && html`<div class="filters compact">${select("Trends of the last", period, Object.keys(PERIODS), setPeriod)}
      ${button("Charts", () => setOpen(!isOpen), { "aria-expanded": isOpen })}${legend(KEYS.map(sign))}</div>`}
    ${isOpen && hasChart && html`<${OpenCharts} samples=${data.samples} forecast=${isDown ? {} : data.forecast} period=${period} place=${place} />`}
    ${data && !isDown && list(Object.values(data.forecast).flatMap((found) => found ? sentence(found.text) : []), "plain")}`;
}

const MOST = 100; // nodes in a request
const WAIT_MS = 100; // for others that come into view
const AGAIN_MS = 10_000; // after no answer
const days = {}; // resource and uuid -> a node's last day, if it is known, as of an hour
const waiting = new Map(); // resource -> uuids

function wait(resource, hour, uuids, waitMs = WAIT_MS) {
  if (!waiting.has(resource)) {
    waiting.set(resource, new Set());
    setTimeout(readDays, waitMs, resource, hour);
  }
  for (const uuid of uuids) waiting.get(resource).add(uuid);
}

async function readDays(resource, hour) {
  const uuids = [...waiting.get(resource)].slice(-MOST);
  waiting.delete(resource);
  const { data, error } = await request(`/v1/trends/nodes?${new URLSearchParams([["resource", resource], ...uuids.map((uuid) => ["node", uuid])])}`);
  if (isOutage(error)) return wait(resource, hour, uuids, AGAIN_MS);
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
      wait(resource, hour, [uuid]);
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [uuid, resource, hour]);
  const { percents, text } = days[resource + uuid] ?? {};
  const label = text && `${resourceOf(resource).name} over 24 hours: ${text}`;
  return html`<span class="day" ref=${box} role=${text && "img"} aria-label=${label} title=${label}>${percents && html`
    <svg class="trend" viewBox="0 0 23 40" preserveAspectRatio="none" aria-hidden="true">
      <path d=${lineOf(percents.map((percent, index) => ({ place: index, percent })), "percent", Math.max(100, ...percents))} />
    </svg>`}</span>`;
}
