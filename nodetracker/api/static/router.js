// The address of the page: "#/nodes/UUID?sort=host" is the path /nodes/UUID with a query.
import { useUpdates } from "./preact.js";

let current = read();
const listeners = new Set();

function read() {
  const [path, query] = location.hash.slice(1).split("?");
  return { path: path || "/", query: Object.fromEntries(new URLSearchParams(query)) };
}

const filledOf = (query) => Object.fromEntries(Object.entries(query).filter(([, value]) => value));

export function hrefOf(path, query = {}) {
  const text = new URLSearchParams(filledOf(query)).toString();
  return `#${path}${text && `?${text}`}`;
}

export function useLocation() {
  useUpdates(listeners);
  return current;
}

// Change parameters of this view's query ("" removes one) without a new entry in the history.
export function setQuery(changes) {
  move({ ...current, query: filledOf({ ...current.query, page: "", ...changes }) });
  try {
    history.replaceState(null, "", hrefOf(current.path, current.query));
  } catch {
    // browsers limit how often an address changes
  }
}

export function navigate(path) {
  location.hash = hrefOf(path);
}

function move(address) {
  current = address;
  for (const update of listeners) update();
}

addEventListener("hashchange", () => move(read()));
