// Differences of the history as readable lines: "memory_mb 65536 → 131072".
import { html } from "./preact.js";
import { folded, list } from "./widgets.js";

const FEW = 6;
const KEYS = ["id", "size_kb", "uuid", "address", "name"]; // by which items of lists are matched
const NOUNS = { guests: "guest", devices: "device" };

const isObject = (value) => value !== null && typeof value === "object";

function render(value) {
  if (Array.isArray(value)) return value.map(render).join(", ") || "none";
  return isObject(value) ? JSON.stringify(value) : String(value ?? "") || "none";
}

// Return the parts of a value by name, items of a list by what identifies them; null without parts.
function partsOf(value) {
  if (!isObject(value)) return null;
  if (!Array.isArray(value)) return new Map(Object.entries(value).map(([name, part]) => [`.${name}`, part]));
  if (value.length === 0 || !value.every(isObject)) return null;
  return new Map(value.map((item) => [`[${item[KEYS.find((key) => key in item)] ?? JSON.stringify(item)}]`, item]));
}

function compare(name, before, after) {
  const [old, fresh] = [partsOf(before), partsOf(after)];
  if (old || fresh) {
    const names = new Set([...(old?.keys() ?? []), ...(fresh?.keys() ?? [])]);
    return [...names].flatMap((part) => compare(name + part, old?.get(part), fresh?.get(part)));
  }
  const line = { name, before: render(before), after: render(after) };
  return line.before === line.after ? [] : [line];
}

function compareItems(noun, { added = [], changed = [], removed = [] }) {
  const nameOf = (item) => `${noun} ${item.name || item.uuid || item.address || item}`;
  const sizeOf = (item) => (item.uuid
    ? `${item.vcpu_milli / 1000} CPUs, ${item.memory_mb} MiB, ${item.power_state}`
    : `${item.vendor_id}:${item.product_id}, ${item.status}`);
  return [
    ...added.map((item) => ({ name: nameOf(item), text: `appeared: ${sizeOf(item)}` })),
    ...changed.flatMap(({ uuid, address, ...fields }) => Object.entries(fields)
      .flatMap(([field, change]) => compare(`${noun} ${uuid ?? address}.${field}`, ...change))),
    ...removed.map((item) => ({ name: nameOf(item), text: "disappeared" })),
  ];
}

// Return the lines of a column's change: {name, before, after}, or {name, text}.
function linesOf([column, change]) {
  if (Array.isArray(change)) return compare(column, ...change);
  return NOUNS[column] ? compareItems(NOUNS[column], change) : [{ name: column, text: render(change) }];
}

const show = (lines) => list(lines.map(({ name, text, before, after }) => html`<code>${name}</code> ${text
  ?? html`<del>${before}</del> → <ins>${after}</ins>`}`), "diff");

// The diff of an entry of the history; what is more than a few lines is folded.
export function diffList(diff) {
  const lines = Object.entries(diff).flatMap(linesOf);
  const rest = lines.slice(FEW);
  return [show(lines.slice(0, FEW)), rest.length > 0 && folded(`${rest.length} more`, show(rest))];
}
