// The fleet's health in words, decided from the overview.
import { fillOf } from "./bars.js";
import { plural } from "./format.js";
import { hrefOf } from "./router.js";

const SIGNS = { bad: "▲", warning: "◆", good: "✔" };
const COLORS = { bad: "#b3261e", warning: "#b26a00", good: "#1a7f37", unknown: "#4a5560" };
const SHAPES = {
  bad: "M8 2l6.5 12h-13z",
  warning: "M8 1.5L14.5 8 8 14.5 1.5 8z",
  good: "M3 8.5l3.5 3.5L13 4.5",
  unknown: "M3 8h10",
};

// Return whether a node's claims and guests use more than its ratios allow.
export const isOvercommitted = ({ amounts }) =>
  Object.values(amounts).some((use) => fillOf(use) > 1);

// Return whether a node should have been read since, although its host is up.
export const isUnread = ({ state, freshness }) =>
  state === "up" && (freshness === "late" || freshness === "stale");

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

// Return how many nodes the fleet has, those that the answer leaves out included.
export const countNodes = ({ states }) => sum(states);

function countHosts(overview, state) {
  if (overview.truncated) return plural(overview.states[state], "node");
  const hosts = new Set(overview.nodes.filter((node) => node.state === state).map(({ host }) => host));
  return plural(hosts.size, "host");
}

// Return what is wrong, worst first: {level, text, href} each.
export function findProblems(overview) {
  const { nodes, states, freshness, warnings } = overview;
  const unread = nodes.filter(isUnread).length;
  const overcommitted = nodes.filter(isOvercommitted).length;
  const warned = sum(warnings);
  const found = [
    [states.down, "bad", () => `${countHosts(overview, "down")} down`, { state: "down" }],
    [states.unreachable, "bad", () => `${countHosts(overview, "unreachable")} unreachable`,
      { state: "unreachable" }],
    [unread, "warning", () => `${plural(unread, "node")} not read recently`, { only: "unread" }],
    [freshness.never, "warning", () => `${plural(freshness.never, "node")} never read`,
      { freshness: "never" }],
    [overcommitted, "warning", () => `${plural(overcommitted, "node")} overcommitted`,
      { only: "overcommitted" }],
  ]
    .filter(([count]) => count > 0)
    .map(([, level, text, query]) => ({ level, text: text(), href: hrefOf("/", query) }));
  if (warned > 0) {
    found.push({ level: "warning", text: plural(warned, "warning"), href: hrefOf("/warnings") });
  }
  return found;
}

// Return the level of the whole fleet.
export const levelOf = (problems) => problems[0]?.level ?? "good";

// Return the sign of a level, beside its word.
export const signOf = (level) => SIGNS[level];

// Return the sentence that says that nothing is wrong.
export function praise(count) {
  if (count === 0) return "No node yet";
  return count === 1 ? "The node is fine" : `All ${plural(count, "node")} are fine`;
}

// Show a level in the icon of the tab.
export function setIcon(level) {
  const isLine = level === "good" || level === "unknown";
  const ink = isLine ? 'fill="none" stroke="#fff" stroke-width="2.4"' : 'fill="#fff"';
  const shape = `<g transform="translate(2.4 2.4) scale(.7)"><path d="${SHAPES[level]}" ${ink}/></g>`;
  const box = `<rect width="16" height="16" rx="3" fill="${COLORS[level]}"/>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">${box}${shape}</svg>`;
  document.querySelector('link[rel="icon"]').href = `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
