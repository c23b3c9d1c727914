// Small parts of many views: numbers, times and ages as text, functions that return elements, and components.
import { html, useLayoutEffect, useRef, useState, useUpdates } from "./preact.js";
import { hrefOf, setQuery } from "./router.js";

const ROUNDING = { free: "floor", requested: "ceil" }; // by role
const DIGITS = [[100, 0], [1, 1], [0.1, 2], [0, 3]]; // of numbers from one on
const AGES = [ // up to, unit, its length, and the unit of the rest
  [120, "s", 1], [3600, "min", 60], [36_000, "h", 3600, "min", 60], [86_400, "h", 3600], [864_000, "d", 86_400, "h", 3600], [Infinity, "d", 86_400],
];
const formats = {}; // making one takes long
const SHORT = 24; // characters of a name that is not broken
const LONGEST = 32; // characters of a name that is not cut
const TICK_MS = 5000;

export const join = (words, separator = ", ") => words.filter(Boolean).join(separator);

// Return a number: "1,235", below 100 with decimals, "12.5"; by its role what is "requested" with three.
export function number(value, role) {
  const roundingMode = ROUNDING[role] ?? "halfExpand";
  const maximumFractionDigits = role === "requested" ? 3 : DIGITS.find(([least]) => !(Math.abs(value) < least))[1];
  const format = formats[roundingMode + maximumFractionDigits] ??= new Intl.NumberFormat("en", { maximumFractionDigits, roundingMode, signDisplay: "negative" });
  return format.format(value);
}

// Return "1 node", "2 nodes".
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// Return seconds as "12 s", "5 min", "1 h 21 min", "2 d 3 h"; if short in one unit.
export function age(seconds, isShort) {
  const value = Math.floor(Math.max(0, seconds));
  const [, unit, length, smaller, part] = AGES.find(([end]) => value < end);
  const rest = smaller && !isShort ? Math.floor((value % length) / part) : 0;
  return `${number(Math.floor(value / length))} ${unit}${rest > 0 ? ` ${rest} ${smaller}` : ""}`;
}

// Return a Date, or a time of the API, in the browser's zone and with its name: "2026-01-31 12:00:00 CET".
const timeFormat = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "long" });
export const time = (value) => timeFormat.format(new Date(value));

export function announce(text) {
  document.getElementById("live").textContent = text;
}

const KEYS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };

// Return the index to which a key leads within a list; undefined, and nothing is done, if it is another key.
export function step(event, index, length) {
  if (!(event.key in KEYS)) return undefined;
  event.preventDefault();
  return Math.min(length - 1, Math.max(0, index + KEYS[event.key]));
}

const cut = (characters) => [...characters.slice(0, LONGEST / 2), "…", ...characters.slice(1 - LONGEST / 2)].join("");

function recall(method, name, ...values) {
  try {
    return localStorage[method](`nodetracker.${name}`, ...values);
  } catch {
    return null; // storage is switched off: a choice lasts until the page is left
  }
}

// As useState, of a text that the reader chose and the browser keeps.
export function useChoice(name, initial) {
  const [chosen, setChosen] = useState(() => recall("getItem", name) ?? initial);
  const choose = (text) => {
    setChosen(text);
    recall("setItem", name, text);
  };
  return [chosen, choose];
}

// A name of any length and direction; a long one is cut in its middle and has a title.
export const bdi = (text) => (text?.length > LONGEST
  ? html`<bdi class="long" title=${text}>${cut([...text])}</bdi>`
  : html`<bdi class=${text?.length > SHORT ? "long" : "name"}>${text}</bdi>`);

export const sentence = (text) => html`<bdi>${text}</bdi>`;
export const quiet = (text) => html`<p class="quiet">${text}</p>`;
export const aside = (text) => html`<span class="quiet">${text}</span>`;
export const link = (path, text, query) => html`<a href=${hrefOf(path, query)}>${text}</a>`;
export const list = (items, className) => items.length > 0 && html`<ul class=${className}>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
export const folded = (title, text) => html`<details><summary>${title}</summary>${text}</details>`;
export const button = (text, onClick, more) => html`<button type="button" onClick=${onClick} ...${more}>${text}</button>`;
export const legend = (signs) => list(signs, "legend");

// A button "?" that explains signs and colours.
export const help = (id, title, content) => html`<button type="button" class="help" popovertarget=${id} aria-label=${title} title=${title}>?</button>
  <div id=${id} popover="auto" class="explained" role="dialog" tabindex="0" aria-label=${title}><h2>${title}</h2>${content}</div>`;

// A word with the sign of a level, by default its own, from the style sheet: never colour alone.
export const mark = (word, level = word) => html`<span class=${`mark is-${level.replaceAll(" ", "-")}`}>${word}</span>`;

// Return what is to be said of a node: its state, and what is not as usual.
export function wordsOf({ state, status, maintenance, freshness, forced_down: isForced, spare }) {
  const isStale = freshness && freshness !== "fresh" && state === "up";
  const read = freshness === "never" ? "never read" : isStale && freshness;
  const isUnread = state === "up" && freshness === "never"; // and so not as it should be
  return [!isUnread && state, isForced && "forced down", status === "disabled" && status, maintenance && "maintenance", spare && "spare", read].filter(Boolean);
}

// What was decided about a host: [title, since when, by whom and why].
export const decisions = (row) => [["Disabled", "disabled"], ["Maintenance", "maintenance"], ["Forced down", "forced_down"]].map(([title, name]) => {
  const [at, by, reason] = ["at", "by", "reason"].map((part) => row[`${name}_${part}`]);
  return [title, at && html`${ago(at)}${by && html` by <bdi>${by}</bdi>`}${reason && html`: <bdi>${reason}</bdi>`}`];
});

// Since when a node or service is not as usual; lists have the time of the state that they show.
const sinceOf = (row) => row.since ?? row.down_since ?? row.forced_down_at ?? row.maintenance_at ?? row.disabled_at;

// Why a node or service is not as usual, if somebody has said so.
export const reasonOf = (row) => row.forced_down_reason || row.maintenance_reason || row.disabled_reason;

// The state of a node or service and since when it is so, and why, if that is wanted; lines may break between its words.
export function states(row, hasReason) {
  const since = sinceOf(row);
  const isBad = row.state !== "up" || row.forced_down;
  return html`<span>${wordsOf(row).map((word) => [mark(word), " "])}${
    since && html`<span class=${isBad ? "since" : "since quiet"}><${Ago} at=${since} end="" isShort /></span> `}${
    hasReason && html`<bdi class="quiet">${reasonOf(row)}</bdi>`}</span>`;
}

// An error of the API with all its reasons.
const errorText = ({ title, detail, reasons }) => html`<div class="error" role="alert">
  <p>${join([title, detail], ": ")}</p>${list(reasons)}
</div>`;

// An answer of usePoll, rendered by a function of its data.
export function answer({ data, error }, render, waiting = quiet("Loading…")) {
  const isRefused = error?.status >= 400 && error.status < 500;
  if (error && (isRefused || data === null)) return errorText(error);
  return data === null ? waiting : render(data);
}

// Whether some answers of a view are still to come: what is drawn before would be moved by them.
export const isWaiting = (polls) => polls.some(({ data, error }) => data === null && !error);

// A link to a node, by its names where its uuid is not known.
export const nodeLink = ({ node_uuid: uuid, host, nodename }) =>
  (uuid ? link(`/nodes/${uuid}`, bdi(nodename)) : link("/node", bdi(nodename), { host, nodename }));

export const hostLink = (host) => link("/host", bdi(host), { host });

let offset = 0; // ms by which the server's clock is ahead of the browser's
export const clocks = new Set(); // called every few seconds

export function setNow(now) {
  offset = new Date(now) - Date.now();
}

export const serverNow = () => Date.now() + offset;

export function tick() {
  for (const update of clocks) update();
}

setInterval(() => document.hidden || tick(), TICK_MS);

export const ageOf = (at, isShort) => age((serverNow() - new Date(at)) / 1000, isShort);

function Ago({ at, end = " ago", isShort }) {
  useUpdates(clocks);
  return html`<time datetime=${at} title=${time(at)}>${ageOf(at, isShort)}${end}</time>`;
}

// A time of the API as an age that grows.
export const ago = (at) => (at ? html`<${Ago} at=${at} />` : "never");

export const section = (title, content, id = title.toLowerCase().replaceAll(" ", "-")) => html`<section aria-labelledby=${id}>
  <h2 id=${id} tabindex="-1">${title}</h2>${content}
</section>`;

// A choice of values; one that has another text is [value, text].
export const select = (title, chosen, values, onChange) => html`<label>${title}
  <select value=${chosen} onChange=${({ target }) => onChange(target.value)}>${values.map((each) => html`
    <option value=${[each].flat()[0]}>${[each].flat().at(-1)}</option>`)}</select>
</label>`;

function Field({ name, title, look, initial = "", ...more }) {
  const input = useRef(null);
  useLayoutEffect(() => {
    input.current.value = initial; // the same element, which keeps the focus
  }, [initial]);
  return html`<label class=${look}>${title}<input name=${name} ref=${input} ...${more} /></label>`;
}

// A field that has what the address has, whenever that changes.
export const field = (query, name, title, { class: look, defaultValue, ...more } = {}) =>
  html`<${Field} name=${name} title=${title} look=${look} initial=${query[name] ?? defaultValue} ...${more} />`;

// Render fields that are in the address once the button is pressed.
export function QueryForm({ submit, children, ...more }) {
  const onSubmit = (event) => {
    event.preventDefault();
    setQuery({ sort: "", marker: "", ...Object.fromEntries(new FormData(event.target)) });
  };
  return html`<form class="filters" onSubmit=${onSubmit} ...${more}>${children}<button class="primary">${submit}</button></form>`;
}

// Render a form: send(FormData) returns the answer of a request; without an error, onDone is called.
export function RequestForm({ submit, isDangerous, send, onDone, onCancel, children, ...more }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const { error: refused } = await send(new FormData(event.target));
    setBusy(false);
    if (refused) setError(refused);
    else onDone();
  };
  return html`<form onSubmit=${onSubmit} ...${more}>${children}
    ${error && errorText(error)}
    <p class="buttons">${onCancel && button("Cancel", onCancel)}
      <button class=${isDangerous ? "danger" : "primary"} disabled=${isBusy}>${submit}</button></p>
  </form>`;
}
