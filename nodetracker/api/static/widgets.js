// Small parts of many views.
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

// Let screen readers say a text, by the live region of index.html.
export function announce(text) {
  const region = document.getElementById("live");
  if (region.textContent !== text) region.textContent = text;
}

// Render a name of any length and direction.
export const Name = ({ text }) => html`<bdi class=${text?.length > SHORT ? "long" : "name"}>${text}</bdi>`;

// Render a nodename as a link to the node, which the overview knows if no uuid is given.
export function NodeLink({ uuid, host, nodename }) {
  const { data } = usePoll("/v1/overview");
  const found = uuid ?? (data && uuidsOf(data.nodes).get(`${host}\n${nodename}`));
  const name = html`<${Name} text=${nodename} />`;
  return found ? html`<a href=${hrefOf(`/nodes/${found}`)}>${name}</a>` : name;
}

const uuids = new WeakMap(); // nodes of an overview -> host and nodename -> uuid

function uuidsOf(nodes) {
  if (!uuids.has(nodes)) {
    uuids.set(nodes, new Map(nodes.map(({ host, nodename, uuid }) => [`${host}\n${nodename}`, uuid])));
  }
  return uuids.get(nodes);
}

let offset = 0; // ms by which the server's clock is ahead of the browser's
const clocks = new Set();

// Note the server's time.
export function setNow(now) {
  offset = new Date(now) - Date.now();
}

// Return the server's time in ms.
export const serverNow = () => Date.now() + offset;

// Return how long ago a time of the API was.
export const ageOf = (at) => age((serverNow() - new Date(at)) / 1000);

setInterval(() => {
  if (!document.hidden) for (const update of clocks) update();
}, TICK_MS);

// Render a time of the API as an age that grows, null as "never".
export function Ago({ at }) {
  useUpdates(clocks);
  return at ? html`<time datetime=${at} title=${time(at)}>${ageOf(at)} ago</time>` : "never";
}

// Render a word with the sign of a level, by default its own: never colour alone.
export function Mark({ word, level = word }) {
  const [sign, name] = (MARKS[level] ?? " quiet").split(" ");
  return html`<span class=${`mark ${name}`}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

// Return what is to be said of a node: its state, and what is not as usual.
export function wordsOf({ state, status, maintenance, freshness }) {
  const isStale = freshness && freshness !== "fresh" && state === "up";
  const read = freshness === "never" ? "never read" : isStale && freshness;
  return [state, status === "disabled" && status, maintenance && "maintenance", read].filter(Boolean);
}

// Render the state of a node or service; lines may break between its words.
export const State = ({ of }) => wordsOf(of).map((word) => [html`<${Mark} word=${word} />`, " "]);

// Render a part of a view.
export const Section = ({ title, children, id = title.toLowerCase().replaceAll(" ", "-") }) => html`<section aria-labelledby=${id}>
  <h2 id=${id}>${title}</h2>${children}
</section>`;

// Render the meaning of signs: [sign, text] each.
export const Legend = ({ of }) => html`<ul class="legend">${of.map(([sign, text]) => html`<li>${sign}${text}</li>`)}</ul>`;

// Render an error of the API with all its reasons.
export const ErrorText = ({ error: { title, detail, reasons } }) => html`<div class="error" role="alert">
  <p>${join([title, detail], ": ")}</p>
  ${reasons.length > 0 && html`<ul>${reasons.map((text) => html`<li>${text}</li>`)}</ul>`}
</div>`;

// Render an answer of usePoll by a function of its data.
export function Answer({ poll: { data, error }, children: render }) {
  const isRefused = error?.status >= 400 && error.status < 500;
  if (error && (isRefused || data === null)) return html`<${ErrorText} error=${error} />`;
  return data === null ? html`<p class="quiet">Loading…</p>` : render(data);
}

// Render a choice of one of [value, text] pairs, or of all, that is in the address.
export function Choice({ name, title, values, all = "all" }) {
  const choose = ({ target }) => setQuery({ [name]: target.value, marker: "" });
  return html`<label>${title}
    <select value=${useLocation().query[name] ?? ""} onChange=${choose}>
      ${[["", all], ...values].map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}

// Render fields that are in the address once the button is pressed.
export function QueryForm({ button, children, ...more }) {
  const submit = (event) => {
    event.preventDefault();
    setQuery({ sort: "", ...Object.fromEntries(new FormData(event.target)) });
  };
  return html`<form class="filters" onSubmit=${submit} ...${more}>${children}<button class="primary">${button}</button></form>`;
}

// Render a form of a request: send(FormData) returns its answer; without an error, onDone is called.
export function RequestForm({ button, isDangerous, send, onDone, onCancel, children, ...more }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const answer = await send(new FormData(event.target));
    setBusy(false);
    if (answer.error) setError(answer.error);
    else onDone();
  };
  return html`<form onSubmit=${submit} ...${more}>${children}
    ${error && html`<${ErrorText} error=${error} />`}
    <p class="buttons">
      ${onCancel && html`<button type="button" onClick=${onCancel}>Cancel</button>`}
      <button class=${isDangerous ? "danger" : "primary"} disabled=${isBusy}>${button}</button>
    </p>
  </form>`;
}
