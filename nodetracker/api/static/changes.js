// What agents changed in the rows of nodes, newest first.
import { Ago } from "./ago.js";
import { plural } from "./format.js";
import { List } from "./list.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";

const LONGEST = 160; // characters of a value
const MOST = 8; // differences that are shown at once

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function show(value) {
  if (value === null || value === undefined || value === "") return "none";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

// Return [name, old, new] of everything that differs.
function compare(name, old, fresh) {
  if (!isObject(old) || !isObject(fresh)) return [[name, old, fresh]];
  return [...new Set([...Object.keys(old), ...Object.keys(fresh)])]
    .filter((key) => JSON.stringify(old[key]) !== JSON.stringify(fresh[key]))
    .flatMap((key) => compare(`${name}.${key}`, old[key], fresh[key]));
}

// Return the lines of guests or devices: {added, changed, removed}.
function compareItems(noun, { added = [], changed = [], removed = [] }) {
  const nameOf = ({ name, uuid, address }) => `${noun} ${name || uuid || address}`;
  return [
    ...added.map((item) => [nameOf(item), "added"]),
    ...removed.map((key) => [`${noun} ${key}`, "removed"]),
    ...changed.flatMap(({ uuid, address, ...fields }) =>
      Object.entries(fields).flatMap(([field, [old, fresh]]) =>
        compare(`${nameOf({ uuid, address })} ${field}`, old, fresh),
      ),
    ),
  ];
}

function listLines(diff) {
  return Object.entries(diff).flatMap(([name, value]) => {
    if (Array.isArray(value)) return compare(name, ...value);
    return isObject(value) ? compareItems(name.replace(/s$/, ""), value) : [[name, value]];
  });
}

const Line = ([name, old, ...rest]) => html`<li><bdi>${name}</bdi> ${" "}<bdi>${show(old)}</bdi>${
  rest.length > 0 && html` → <b><bdi>${show(rest[0])}</bdi></b>`}</li>`;

// Render the differences of one change: "memory_mb 65536 → 131072".
export function Diff({ diff }) {
  const lines = listLines(diff);
  const list = html`<ul class="diff">${lines.map(Line)}</ul>`;
  if (lines.length <= MOST) return list;
  return html`<details><summary>${plural(lines.length, "difference")}</summary>${list}</details>`;
}

const COLUMNS = [
  { id: "at", title: "When", isFixed: true, cell: ({ at }) => html`<${Ago} at=${at} />` },
  { id: "host", title: "Host", isFixed: true, cell: ({ host }) => html`<bdi>${host}</bdi>` },
  { id: "node", title: "Node", isFixed: true, isHead: true,
    cell: ({ host, nodename }) => html`<${NodeLink} host=${host} nodename=${nodename} />` },
  { id: "what", title: "What", isFixed: true, cell: ({ what }) => what },
  { id: "diff", title: "Differences", isFixed: true, cell: ({ diff }) => html`<${Diff} diff=${diff} />` },
];

// Render the view.
export const Changes = () =>
  html`<${List} path="/v1/history" noun="history" columns=${COLUMNS} next="Older" empty="No change." />`;
