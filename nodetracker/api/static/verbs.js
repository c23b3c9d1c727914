// What is done with hosts from everywhere: by a key, by a button of the bar, and in words in the palette.
import { lastRequest } from "./fit.js";
import { navigate, serverNow, useUpdates } from "./page.js";

const OUT = { title: "Take out", takes_reason: true, body: { disabled: true, maintenance: true },
  effect: "Disabled and in maintenance, with a reason: no node of it accepts new claims. What runs there is not touched." };
const BACK = { title: "Put back in", body: { disabled: false, maintenance: false },
  effect: "Enabled, and maintenance ends: all of its nodes accept claims again." };
const DISABLE = { title: "Disable", takes_reason: true, body: { disabled: true }, effect: "No node of it accepts new claims. What runs there is not touched." };
const ENABLE = { title: "Enable", body: { disabled: false }, effect: "All of its nodes accept claims again." };

const local = (date) => date.toLocaleString("sv", { dateStyle: "short", timeStyle: "short" }).replace(" ", "T");

// Return last night, 18:00 to 8:00 in the zone of all times on the page, as fields have it.
export function lastNight() {
  const end = new Date(serverNow());
  end.setHours(8, 0, 0, 0);
  const since = new Date(end);
  since.setHours(18 - 24);
  return { since: local(since), until: local(end) };
}

// Words are those that the palette knows; a verb either changes hosts, or shows something of one.
export const VERBS = [
  { key: "o", name: "Take out", words: "take out", change: OUT },
  { key: "i", name: "Put back in", words: "put back in", change: BACK },
  { key: "e", name: "Events", words: "events of on what happened", show: (host) => ["/events", { host }] },
  { key: "n", name: "Last night", words: "last night on", show: (host) => ["/events", { host, ...lastNight() }] },
  { key: "l", name: "Guests", words: "guests on", show: (host) => ["/workloads", { host }] },
  { key: "w", name: "Why not", words: "why not on", show: (host) => ["/fit", { ...(lastRequest() ?? { cpus: 1 }), why: host }] },
  { name: "Disable", words: "disable", change: DISABLE },
  { name: "Enable", words: "enable", change: ENABLE },
];

// Return [the verb that a text such as "take h5 out" names, or undefined, and the rest of it].
export function parseVerb(text) {
  const given = text.trim().split(/\s+/);
  const restOf = ({ words }) => given.filter((word) => !words.split(" ").includes(word.toLowerCase()));
  const [verb] = VERBS.filter((each) => restOf(each).length > 0 && restOf(each).length < given.length)
    .sort((a, b) => restOf(a).length - restOf(b).length);
  return [verb, (verb ? restOf(verb) : given).join(" ")];
}

let asked = null; // {verb, hosts} that wait for their dialog
const listeners = new Set();

function ask(wanted) {
  asked = wanted;
  for (const update of listeners) update();
}

// Return what is to be asked before hosts are changed, and what ends that.
export function useAsked() {
  useUpdates(listeners);
  return [asked, () => ask(null)];
}

// Do something with hosts, of which one is shown or all are changed.
export function run(verb, hosts) {
  if (verb.change) ask({ verb, hosts });
  else navigate(...verb.show(hosts[0]));
}
