// Small parts of many views: functions that return elements, and components.
import { usePoll } from "./api.js";
import { age, join, time } from "./format.js";
import { html, useState, useUpdates } from "./preact.js";
import { hrefOf, setQuery, useLocation } from "./router.js";

const SHORT = 24; // characters of a name that is not broken
const TICK_MS = 5000;
const MARKS = { // of levels and other words: sign and class
  good: "✔ good", warning: "◆ warning", bad: "▲ bad",
  up: "● good", down: "▲ bad", unreachable: "▲ bad", disabled: "◼ quiet", maintenance: "◼ quiet", error: "▲ bad",
  late: "◆ warning", stale: "◆ warning", "never read": "◇ warning",
  available: "○ good", claimed: "◐ used", allocated: "● used", removed: "▲ bad",
};

export function announce(text) {
  const region = document.getElementById("live");
  if (region.textContent !== text) region.textContent = text;
}

// A name of any length and direction.
export const bdi = (text) => html`<bdi class=${text?.length > SHORT ? "long" : "name"}>${text}</bdi>`;

export const quiet = (text) => html`<p class="quiet">${text}</p>`;
export const link = (path, text, query) => html`<a href=${hrefOf(path, query)}>${text}</a>`;
export const list = (items, className) => html`<ul class=${className}>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
export const folded = (title, text) => html`<details><summary>${title}</summary>${text}</details>`;
export const button = (text, onClick, more) => html`<button type="button" onClick=${onClick} ...${more}>${text}</button>`;

// A word with the sign of a level, by default its own: never colour alone.
export function mark(word, level = word) {
  const [sign, name] = (MARKS[level] ?? " quiet").split(" ");
  return html`<span class=${`mark ${name}`}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

// Return what is to be said of a node: its state, and what is not as usual.
export function wordsOf({ state, status, maintenance, freshness }) {
  const isStale = freshness && freshness !== "fresh" && state === "up";
  const read = freshness === "never" ? "never read" : isStale && freshness;
  return [state, status === "disabled" && status, maintenance && "maintenance", read].filter(Boolean);
}

// The state of a node or service; lines may break between its words.
export const states = (row) => wordsOf(row).map((word) => [mark(word), " "]);

// The meaning of signs: [sign, text] each.
export const legend = (signs) => list(signs, "legend");

// An error of the API with all its reasons.
export const errorText = ({ title, detail, reasons }) => html`<div class="error" role="alert">
  <p>${join([title, detail], ": ")}</p>${reasons.length > 0 && list(reasons)}
</div>`;

// An answer of usePoll, rendered by a function of its data.
export function answer({ data, error }, render, waiting = "Loading…") {
  const isRefused = error?.status >= 400 && error.status < 500;
  if (error && (isRefused || data === null)) return errorText(error);
  return data === null ? quiet(waiting) : render(data);
}

export const nodeLink = (uuid, nodename) => link(`/nodes/${uuid}`, bdi(nodename));

const uuids = new WeakMap(); // nodes of an overview -> host and nodename -> uuid

// Render the nodename of a node, as a link if the overview has it.
export function NodeLink({ host, nodename }) {
  const nodes = usePoll("/v1/overview").data?.nodes;
  if (nodes && !uuids.has(nodes)) uuids.set(nodes, new Map(nodes.map((node) => [`${node.host}\n${node.nodename}`, node.uuid])));
  const uuid = uuids.get(nodes)?.get(`${host}\n${nodename}`);
  return uuid ? nodeLink(uuid, nodename) : bdi(nodename);
}

let offset = 0; // ms by which the server's clock is ahead of the browser's
const clocks = new Set();

export function setNow(now) {
  offset = new Date(now) - Date.now();
}

export const serverNow = () => Date.now() + offset;

setInterval(() => {
  if (!document.hidden) for (const update of clocks) update();
}, TICK_MS);

export const ageOf = (at) => age((serverNow() - new Date(at)) / 1000);

function Ago({ at }) {
  useUpdates(clocks);
  return html`<time datetime=${at} title=${time(at)}>${ageOf(at)} ago</time>`;
}

// A time of the API as an age that grows.
export const ago = (at) => (at ? html`<${Ago} at=${at} />` : "never");

export const Section = ({ title, children, id = title.toLowerCase().replaceAll(" ", "-") }) => html`<section aria-labelledby=${id}>
  <h2 id=${id}>${title}</h2>${children}
</section>`;

// Render a choice of one of [value, text] pairs, or of all, that is in the address.
export function Choice({ name, title, values, all = "all" }) {
  const choose = ({ target }) => setQuery({ [name]: target.value, marker: "" });
  return select(title, useLocation().query[name] ?? "", [["", all], ...values], choose);
}

export const select = (title, chosen, values, onChange) => html`<label>${title}
  <select value=${chosen} onChange=${onChange}>${values.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
</label>`;

// Render fields that are in the address once the button is pressed.
export function QueryForm({ submit, children, ...more }) {
  const onSubmit = (event) => {
    event.preventDefault();
    setQuery({ sort: "", ...Object.fromEntries(new FormData(event.target)) });
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
