// The REST API: requests, whose errors are values, and answers that are asked for again.
import { useEffect, useUpdates } from "./preact.js";

const TIMEOUT_MS = 30_000;
const INTERVAL_MS = 5000;
const LONGEST_MS = 60_000;
const SLEEP_MS = 30_000; // between two ticks
const KEPT = 30; // answers of views that were left
const OVERVIEW = "/v1/overview"; // which is large, and mostly as before

const polls = new Map(); // path -> Poll
const watchers = new Set(); // called when any poll changes

// Send a request to a path such as /v1/nodes. Return {error: {status, title, detail, reasons}}, or
// {data, tag}: data is null for an answer without a body, and missing if the given tag still holds.
export async function request(path, { method = "GET", body, tag } = {}) {
  const headers = { Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  if (tag) headers["If-None-Match"] = tag;
  try {
    const response = await fetch(`..${path}`, {
      method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS),
      cache: "no-store", // a kept answer would have an old time
    });
    const text = await response.text(); // of 304 too, or the browser reports that it failed
    if (response.status === 304) return { tag };
    if (!response.ok) return { error: explain(response.status, text) };
    return { data: text ? JSON.parse(text) : null, tag: response.headers.get("ETag") };
  } catch (error) {
    return { error: { status: 0, title: "No connection", detail: error.message, reasons: [] } };
  }
}

function explain(status, text) {
  try {
    return { reasons: [], ...JSON.parse(text).errors[0], status };
  } catch {
    return { status, title: `HTTP ${status}`, detail: "", reasons: [] }; // a proxy's own page
  }
}

// As usePoll, for a list with a query; a value may be a list of values, and undefined.
export function useList(noun, query, key) {
  const given = Object.entries(query).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  return usePoll(`/v1/${noun}?${new URLSearchParams(given.filter(([, value]) => value !== undefined))}`, key);
}

// Return the marker of the page after a page of a list, if any.
export function markerOf({ links: [next] }) {
  return next && new URL(next.href, location).searchParams.get("marker");
}

function update(nodes, changed) {
  const found = new Map(changed.map((node) => [node.uuid, node]));
  return nodes.map((node) => found.get(node.uuid) ?? node);
}

class Poll {
  data = null;
  error = null; // of the last request
  answeredAt = null; // Date of the last good answer
  listeners = new Set();
  failures = 0;

  constructor(path) {
    this.path = path;
  }

  get isActive() {
    return this.listeners.size > 0 && !document.hidden;
  }

  async ask() {
    this.isWanted = true;
    if (this.isAsking) return;
    clearTimeout(this.timer);
    this.isAsking = true;
    while (this.isWanted) {
      this.isWanted = false;
      const path = this.path === OVERVIEW && this.tag ? `${OVERVIEW}?${new URLSearchParams({ base: this.tag })}` : this.path;
      this.take(await request(path, { tag: this.tag }));
    }
    this.isAsking = false;
    if (this.key !== undefined && !this.error) return;
    const wait = Math.min(LONGEST_MS, INTERVAL_MS * 2 ** Math.max(0, this.failures - 1));
    this.timer = setTimeout(() => this.isActive && this.ask(), wait);
  }

  take({ data, tag, error = null }) {
    const isNews = error || this.error || data !== undefined;
    this.error = error;
    this.failures = error ? this.failures + 1 : 0;
    if (!error) Object.assign(this, { tag, answeredAt: new Date() });
    if (data !== undefined) this.data = data?.base ? { ...data, nodes: update(this.data.nodes, data.nodes) } : data;
    if (isNews) for (const inform of [...this.listeners, ...watchers]) inform();
  }
}

function pollOf(path) {
  if (!polls.has(path)) {
    polls.set(path, new Poll(path));
    const left = [...polls.values()].filter(({ path: known, listeners }) => listeners.size === 0 && known !== path);
    for (const poll of left.slice(0, -KEPT)) polls.delete(poll.path);
  }
  return polls.get(path);
}

// Return {data, error, answeredAt} of a GET; data is null before the first good answer. It is asked
// again every few seconds while the page is visible; with a key, when that changes and after errors.
export function usePoll(path, key) {
  const poll = pollOf(path);
  useUpdates(poll.listeners);
  useEffect(() => {
    const isKnown = poll.key === key && poll.listeners.size > 1;
    poll.key = key;
    if (!isKnown) poll.ask();
  }, [poll, key]);
  return poll;
}

export function refreshAll() {
  for (const poll of polls.values()) if (poll.isActive) poll.ask();
}

document.addEventListener("visibilitychange", refreshAll);

let awakeAt = Date.now();
setInterval(() => { // timers pause while the machine sleeps
  if (Date.now() - awakeAt > SLEEP_MS) refreshAll();
  awakeAt = Date.now();
}, INTERVAL_MS);

export const isOutage = (error) => error && (error.status === 0 || error.status >= 500);

// Return the first answer on the page that is out of date, if any; one that never came only if there is no other.
export function useOutage() {
  useUpdates(watchers);
  const old = [...polls.values()].filter(({ isActive, error }) => isActive && isOutage(error));
  return old.find(({ answeredAt }) => answeredAt) ?? old[0];
}

// Return {version, user, rules, …}: who the user is and may do what; null before the answer.
export const useAbout = () => usePoll("/v1/about", 0).data;

export const useMay = (rule) => useAbout()?.rules.includes(`nodetracker:${rule}`);
