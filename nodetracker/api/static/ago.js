// Times as ages that grow, by the server's clock.
import { age, time } from "./format.js";
import { html, useEffect, useReducer } from "./preact.js";

const TICK_MS = 5000;

let offset = 0; // ms by which the server's clock is ahead of the browser's
const listeners = new Set();

// Note the server's time.
export function setNow(now) {
  offset = new Date(now) - Date.now();
}

// Return the server's time in ms.
export const serverNow = () => Date.now() + offset;

setInterval(() => {
  if (!document.hidden) for (const update of listeners) update();
}, TICK_MS);

// Render a time of the API as its age, null as "never".
export function Ago({ at }) {
  const [, update] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(update);
    return () => listeners.delete(update);
  }, []);
  if (!at) return "never";
  const seconds = (serverNow() - new Date(at)) / 1000;
  return html`<time datetime=${at} title=${time(at)}>${age(seconds)} ago</time>`;
}
