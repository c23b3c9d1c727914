// The address of the page: "#/nodes/UUID?tab=numa" is the path /nodes/UUID with a query.
import { useEffect, useReducer } from "./preact.js";

const WRITE_DELAY_MS = 250; // browsers limit how often an address changes

let current = read();
let timer = 0;
const listeners = new Set();

function read() {
  const hash = location.hash.slice(1) || "/";
  const cut = hash.indexOf("?");
  const path = cut < 0 ? hash : hash.slice(0, cut);
  const query = new URLSearchParams(cut < 0 ? "" : hash.slice(cut + 1));
  return { path, query: Object.fromEntries(query) };
}

// Return the href of a view, for links.
export function hrefOf(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(wanted).toString();
  return `#${path}${text && `?${text}`}`;
}

// Return {path, query} of the address; renders again when it changes.
export function useLocation() {
  const [, update] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(update);
    return () => listeners.delete(update);
  }, []);
  return current;
}

// Change parameters of this view's query ("" removes one) without a new entry in the history.
export function setQuery(changes) {
  const query = { ...current.query, ...changes };
  for (const [name, value] of Object.entries(query)) if (!value) delete query[name];
  current = { ...current, query };
  clearTimeout(timer);
  timer = setTimeout(write, WRITE_DELAY_MS);
  for (const update of listeners) update();
}

function write() {
  history.replaceState(null, "", hrefOf(current.path, current.query));
}

// Go to another view.
export function navigate(path, query = {}) {
  location.hash = hrefOf(path, query);
}

addEventListener("hashchange", () => {
  clearTimeout(timer);
  current = read();
  for (const update of listeners) update();
});
