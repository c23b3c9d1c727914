// The address of the page: "#/nodes/UUID?sort=host" is the path /nodes/UUID with a query.
import { useUpdates } from "./preact.js";

const WRITE_DELAY_MS = 250; // browsers limit how often an address changes

let current = read();
let timer = 0;
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
  clearTimeout(timer);
  timer = setTimeout(write, WRITE_DELAY_MS);
  move({ ...current, query: filledOf({ ...current.query, page: "", ...changes }) });
}

// Write parameters that wait into the address, before the view is left.
function write() {
  if (!timer) return;
  clearTimeout(timer);
  timer = 0;
  history.replaceState(null, "", hrefOf(current.path, current.query));
}

export function navigate(path) {
  write();
  location.hash = hrefOf(path);
}

function move(address) {
  current = address;
  for (const update of listeners) update();
}

addEventListener("click", write, true);
addEventListener("hashchange", () => {
  clearTimeout(timer);
  timer = 0;
  move(read());
});
