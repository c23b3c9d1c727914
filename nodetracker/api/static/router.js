// The address of the page: "#/nodes/UUID?sort=host" is the path /nodes/UUID with a query.
import { useEffect, useUpdates } from "./preact.js";

const filledOf = (query) => Object.fromEntries(Object.entries(query).filter(([, value]) => value));

let current = read();
const listeners = new Set();

function read() {
  const [path, text] = location.hash.slice(1).split("?");
  const query = new URLSearchParams(text);
  return { path: query.has("wall") ? "/wall" : path || "/", query: filledOf(Object.fromEntries(query)) };
}

export function hrefOf(path, query = {}) {
  const text = new URLSearchParams(filledOf(query)).toString();
  return `#${path}${text && `?${text}`}`;
}

export function useLocation() {
  useUpdates(listeners);
  return current;
}

let subject = {};

// What the view is about: {title, host}, for the title of the tab, and for what is done with a host.
export const subjectOf = () => subject;

export function useSubject(title, host) {
  useEffect(() => {
    subject = { title, host };
    move(current);
    return () => {
      subject = {};
      move(current);
    };
  }, [title, host]);
}

// Change parameters of this view's query ("" removes one) without a new entry in the history.
export function setQuery(changes) {
  const reset = "marker" in changes ? { page: "", from: "" } : { page: "" }; // the place in a list
  move({ ...current, query: filledOf({ ...current.query, ...reset, ...changes }) });
  replace(entry, hrefOf(current.path, current.query));
}

function replace(state, href) {
  try {
    history.replaceState(state, "", href);
  } catch {
    // browsers limit how often an address changes
  }
}

export function navigate(path, query) {
  location.hash = hrefOf(path, query);
}

function move(address) {
  current = address;
  for (const update of listeners) update();
}

// Entries are numbered, so that Back and Forward find where each was scrolled to.
const tops = {};
let entry = enter();
history.scrollRestoration = "manual";

function enter() {
  if (!history.state) replace(Date.now(), location.href);
  return history.state;
}

addEventListener("hashchange", () => {
  const { path } = current;
  tops[entry] = scrollY;
  entry = enter();
  move(read());
  const top = tops[entry] ?? (path === current.path ? scrollY : 0);
  requestAnimationFrame(() => scrollTo(0, top)); // it is rendered by then
});
