// Charts of CPU, memory and disk over time by uPlot: axes, limit, forecast with its range, events, and the values as a table.
//
// It is loaded when a chart is opened.
import { amount, amountOf, button, column, fixed, html, join, legend, navigate, plural, resourceOf, time, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./page.js";

const HEIGHT = 140; // px
const NEAR = 24; // px between marks of events that are one
const DAY = 86_400; // s
const RESOURCES = { cpu: "VCPU", memory: "MEMORY_MB", disk: "DISK_GB" };
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const LOOKS = { promised: "allocated", measured: "measured", capacity: "limit", forecast: "forecast, with its range" };
const DAYS = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const HOURS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

const seconds = (at) => new Date(at).getTime() / 1000;

let loading = null;

// Load uPlot and its style sheet, once.
function load() {
  const add = (tag, properties) => new Promise((resolve, reject) => {
    document.head.append(Object.assign(document.createElement(tag), properties, { onload: resolve, onerror: reject }));
  });
  const place = (name) => new URL(`vendor/${name}`, import.meta.url).href;
  loading ??= Promise.all([
    add("script", { src: place("uPlot.iife.min.js") }), add("link", { rel: "stylesheet", href: place("uPlot.min.css") }),
  ]).catch(() => {
    loading = null;
  });
  return loading;
}

// Return a colour of the style sheet as it is now, by theme; with forced colours, what only adds to lines is not drawn.
function read(probe, name, share = 100) {
  if (share < 100 && matchMedia("(forced-colors: active)").matches) return "transparent";
  probe.style.color = `color-mix(in srgb, var(--${name}) ${share}%, transparent)`;
  return getComputedStyle(probe).color;
}

// Return the columns of a resource: times, allocated, measured, limit, and the forecast with its earliest and latest course.
function columnsOf(samples, key, forecast, step) {
  const rows = [];
  for (const { at, [key]: { promised: allocated, measured, capacity } } of samples) {
    const x = seconds(at);
    if (rows.length > 0 && x - rows.at(-1)[0] > 1.5 * step) rows.push([x - step, null, null, null, null, null, null]);
    rows.push([x, allocated, measured, capacity, null, null, null]);
  }
  const last = rows.at(-1);
  const [start, from, , limit] = last;
  if (forecast && limit > from) {
    last.fill(from, 4);
    const [first, middle, latest] = ["full_at_from", "full_at", "full_at_to"].map((name) => forecast[name] && seconds(forecast[name]));
    const course = (end, x) => (end ? Math.min(limit, from + ((limit - from) * (x - start)) / (end - start)) : from);
    for (const x of [...new Set([first, middle, latest].filter((end) => end > start))].sort((a, b) => a - b)) {
      rows.push([x, null, null, limit, x <= middle ? course(middle, x) : null, course(first, x), course(latest, x)]);
    }
  }
  return rows[0].map((_, index) => rows.map((row) => row[index]));
}

// Return the events, those that would touch as one: [{x, events}].
function groupOf(events, plot) {
  const groups = [];
  for (const event of events) {
    const x = plot.valToPos(seconds(event.at), "x") + plot.over.offsetLeft;
    if (x < plot.over.offsetLeft || x > plot.over.offsetLeft + plot.over.clientWidth) continue;
    if (groups.length > 0 && x - groups.at(-1).x < NEAR) groups.at(-1).events.push(event);
    else groups.push({ x, events: [event] });
  }
  return groups;
}

function optionsOf({ resource, probe, columns, range, width, onCursor }) {
  const ink = (name, share) => () => read(probe, name, share);
  const limit = Math.max(...columns.slice(1).flat().filter((value) => value !== null)) || 1;
  const line = (name, stroke, more) => ({ label: name, stroke, width: 2, points: { show: false }, ...more });
  const axis = { stroke: ink("quiet"), grid: { stroke: ink("line", 99), width: 1 }, ticks: { stroke: ink("line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const none = ink("claimed", 0);
  return {
    width, height: HEIGHT, legend: { show: false }, padding: [8, 12, 0, 0],
    cursor: { sync: { key: "trends" }, drag: { x: false, y: false }, y: false, points: { size: 6 } },
    scales: { x: { time: true, range: () => range }, y: { range: () => [0, limit * 1.05] } },
    axes: [
      { ...axis, space: 70, size: 30, values: (_, splits, __, ___, step) => splits.map((x) => (step >= DAY || new Date(x * 1000).getHours() === 0 ? DAYS : HOURS).format(x * 1000)) },
      { ...axis, size: 80, space: 24, ...(resource !== "VCPU" && { incrs: BINARY }), values: (_, splits) => splits.map((y) => amount(resource, y, "used", [limit, "used"])) },
    ],
    series: [
      {}, line("allocated", ink("claimed")), line("measured", ink("mark"), { dash: [4, 2], width: 1.5 }), line("limit", ink("edge"), { width: 1 }),
      line("forecast", ink("claimed"), { dash: [8, 4], spanGaps: true }), line("earliest", none, { width: 0 }), line("latest", none, { width: 0 }),
    ],
    bands: [{ series: [5, 6], fill: ink("claimed", 20) }],
    hooks: { setCursor: [({ cursor }) => onCursor(cursor.idx)] },
  };
}

// A chart of one resource; where the cross-hair is, or at the end, its values are beside its name.
function Chart({ resource, columns, range, onPlot }) {
  const [box, probe] = [useRef(null), useRef(null)];
  const [at, setAt] = useState(null);
  useLayoutEffect(() => {
    const plot = new globalThis.uPlot(optionsOf({ resource, probe: probe.current, columns, range, width: box.current.clientWidth, onCursor: setAt }), columns, box.current);
    plot.root.ariaHidden = true; // the table says the same
    const observer = new ResizeObserver(() => {
      plot.setSize({ width: box.current.clientWidth, height: HEIGHT });
      if (onPlot) onPlot({ plot });
    });
    observer.observe(box.current);
    const redraw = () => plot.redraw(false, true);
    const queries = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"].map((query) => matchMedia(query));
    for (const query of queries) query.addEventListener("change", redraw);
    const themes = new MutationObserver(redraw);
    themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      observer.disconnect();
      themes.disconnect();
      for (const query of queries) query.removeEventListener("change", redraw);
      plot.destroy();
    };
  }, [columns]);
  const known = columns[1].findLastIndex((value) => value !== null);
  const index = at !== null && columns[1][at] !== null ? at : known;
  const [x, allocated, measured, limit] = columns.map((values) => values[index]);
  return html`<figure class="chart"><figcaption><strong>${resourceOf(resource).name}</strong> ${amountOf(resource, allocated, limit)} allocated${
    measured !== null && `, ${amount(resource, measured, "used", [limit, "used"])} measured`} <span class="quiet">${time(x * 1000)}</span></figcaption>
    <div ref=${box}></div><span ref=${probe} hidden></span></figure>`;
}

const describe = ({ at, host, nodename, changes }) => `${time(at)}, ${nodename || host}: ${join(changes, "; ")}`;

function openEvents(events) {
  const [first, last] = [events[0], events.at(-1)];
  const minute = (at, more) => new Date(seconds(at) * 1000 + more).toLocaleString("sv", { dateStyle: "short", timeStyle: "short" }).replace(" ", "T");
  const hosts = new Set(events.map(({ host }) => host));
  navigate("/events", { host: hosts.size === 1 ? first.host : "", since: minute(first.at, -60_000), until: minute(last.at, 120_000) });
}

// Marks of events above the charts, at their times.
const marks = (groups) => html`<div class="events" role="group" aria-label="Events">${groups.map(({ x, events }) => {
  const text = events.length > 1 ? `${plural(events.length, "event")}: ${join(events.map(describe), " / ")}` : describe(events[0]);
  return button(events.length > 1 ? events.length : "◆", () => openEvents(events), { "aria-label": text, title: text, style: { left: `${x}px` } });
})}</div>`;

const valueOf = (key) => column(key, resourceOf(RESOURCES[key]).name, ({ promised: allocated, measured, capacity }) => join([
  `${amountOf(RESOURCES[key], allocated, capacity)} allocated`, measured !== null && `${amount(RESOURCES[key], measured, "used", [capacity, "used"])} measured`]));

function Values({ samples }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${({ target }) => setOpen(target.open)}><summary>Values</summary>${isOpen
    && fixed("Values, newest first", [column("at", "Time", time), ...Object.keys(RESOURCES).map(valueOf)], samples.toReversed(), { keyOf: ({ at }) => at })}</details>`;
}

const sign = ([look, text]) => [html`<svg class="trend swatch" viewBox="0 0 10 10" aria-hidden="true"><path class=${look} d="M0 5h10" /></svg>`, text];

// Charts of samples of a period in seconds, and of what was read before and happened since.
export function Charts({ samples, forecast, events, step, length }) {
  const [isLoaded, setLoaded] = useState("uPlot" in globalThis);
  const [first, setFirst] = useState(null); // {plot} that is drawn
  const end = seconds(samples.at(-1).at);
  const ends = Object.values(forecast).flatMap((found) => (found ? [seconds(found.full_at_to ?? found.full_at)] : []));
  const range = [end - length, Math.max(end, ...ends.map((at) => Math.min(at, end + length)))];
  const keys = Object.keys(RESOURCES).filter((key) => samples.at(-1)[key]);
  const columns = useMemo(() => keys.map((key) => columnsOf(samples, key, forecast[key], step)), [samples, length]);
  useEffect(() => {
    let isShown = true;
    load().then(() => isShown && setLoaded("uPlot" in globalThis));
    return () => {
      isShown = false;
    };
  }, []);
  if (!isLoaded) return html`<p class="quiet charts">Loading charts…</p>`;
  return html`<div class="charts">
    ${marks(first ? groupOf(events, first.plot) : [])}
    ${keys.map((key, index) => html`<${Chart} key=${key} resource=${RESOURCES[key]} range=${range} columns=${columns[index]} onPlot=${index === 0 && setFirst} />`)}
    ${legend(Object.entries(LOOKS).map(sign))}
    <${Values} samples=${samples} />
  </div>`;
}
