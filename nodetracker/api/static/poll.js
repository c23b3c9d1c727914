// Answers that are asked for again while the page is visible; the last one is kept.
import { request } from "./api.js";
import { keepIdentity } from "./identity.js";
import { useEffect, useReducer } from "./preact.js";

const INTERVAL_MS = 5000;
const LONGEST_MS = 60_000;
const KEPT = 30; // answers of views that were left

const polls = new Map(); // path -> Poll
const watchers = new Set(); // called when any poll changes

class Poll {
  constructor(path) {
    this.path = path;
    this.data = null;
    this.error = null; // of the last request
    this.answeredAt = null; // Date of the last good answer
    this.listeners = new Set();
    this.tag = null;
    this.failures = 0;
    this.timer = 0;
    this.isAsking = false;
    this.refresh = () => this.ask();
  }

  get isActive() {
    return this.listeners.size > 0 && !document.hidden;
  }

  add(listener) {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.ask();
  }

  remove(listener) {
    this.listeners.delete(listener);
    if (!this.isActive) clearTimeout(this.timer);
  }

  async ask() {
    clearTimeout(this.timer);
    if (this.isAsking) return;
    this.isAsking = true;
    const answer = await request(this.path, { tag: this.tag });
    this.isAsking = false;
    this.failures = answer.error ? this.failures + 1 : 0;
    const hadError = this.error !== null;
    this.error = answer.error ?? null;
    if (!answer.error) {
      this.answeredAt = new Date();
      this.tag = answer.tag;
    }
    const before = this.data;
    if (answer.data !== undefined) this.data = keepIdentity(before, answer.data);
    if (this.data !== before || this.error || hadError) this.notify();
    this.schedule();
  }

  schedule() {
    clearTimeout(this.timer);
    if (!this.isActive) return;
    const wait = Math.min(LONGEST_MS, INTERVAL_MS * 2 ** Math.max(0, this.failures - 1));
    this.timer = setTimeout(this.refresh, wait);
  }

  notify() {
    for (const listener of this.listeners) listener();
    for (const watcher of watchers) watcher();
  }
}

function pollOf(path) {
  let poll = polls.get(path);
  if (!poll) {
    poll = new Poll(path);
    polls.set(path, poll);
    for (const [known, { listeners }] of polls) {
      if (polls.size <= KEPT) break;
      if (listeners.size === 0 && known !== path) polls.delete(known);
    }
  }
  return poll;
}

const useUpdate = () => useReducer((count) => count + 1, 0)[1];

// Return {data, error, answeredAt, refresh} of a GET; data is null before the first good answer.
export function usePoll(path) {
  const poll = pollOf(path);
  const update = useUpdate();
  useEffect(() => {
    poll.add(update);
    return () => poll.remove(update);
  }, [poll]);
  return poll;
}

// Ask for everything that is shown again, e.g. after a change.
export function refreshAll() {
  for (const poll of polls.values()) if (poll.isActive) poll.refresh();
}

// Return {error, answeredAt} of the first shown answer that is out of date, or null.
export function useOutage() {
  const update = useUpdate();
  useEffect(() => {
    watchers.add(update);
    return () => watchers.delete(update);
  }, []);
  for (const poll of polls.values()) {
    const status = poll.error?.status;
    if (poll.isActive && (status === 0 || status >= 500)) return poll;
  }
  return null;
}

document.addEventListener("visibilitychange", () => {
  for (const poll of polls.values()) {
    if (poll.isActive) poll.refresh();
    else clearTimeout(poll.timer);
  }
});
