// Differences of the history as readable lines: "memory_mb 65536 → 131072".
import { html } from "./preact.js";

const FEW = 6;
const KEYS = ["id", "size_kb", "uuid", "address", "name"]; // by which items of lists are matched
const ITEMS = { guests: "guest", devices: "device" };

const isObject = (value) => value !== null && typeof value === "object";

function render(value) {
  if (value === null || value === undefined || value === "") return "none";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(render).join(", ");
  return isObject(value) ? JSON.stringify(value) : String(value);
}

// Return the parts of a value by name; items of a list by what identifies them.
function partsOf(value) {
  if (!Array.isArray(value)) return Object.entries(value ?? {});
  return value.map((item) => {
    const key = KEYS.find((name) => item[name] !== undefined);
    return [`[${key ? item[key] : JSON.stringify(item)}]`, item];
  });
}

const hasParts = (value) =>
  Array.isArray(value) ? value.length > 0 && value.every(isObject) : isObject(value);

function compare(path, before, after, lines) {
  if (hasParts(before) || hasParts(after)) {
    const old = new Map(partsOf(hasParts(before) ? before : null));
    const fresh = new Map(partsOf(hasParts(after) ? after : null));
    for (const name of new Set([...old.keys(), ...fresh.keys()])) {
      const part = name.startsWith("[") ? path + name : `${path}.${name}`;
      compare(part, old.get(name), fresh.get(name), lines);
    }
  } else if (render(before) !== render(after)) {
    lines.push({ name: path, before: render(before), after: render(after) });
  }
}

function compareItems(noun, { added = [], changed = [], removed = [] }, lines) {
  const nameOf = (item) => item.name || item.uuid || item.address || String(item);
  for (const item of added) {
    const size = item.uuid
      ? `${item.vcpu_milli / 1000} CPUs, ${item.memory_mb} MiB, ${item.power_state}`
      : `${item.vendor_id}:${item.product_id}, ${item.status}`;
    lines.push({ name: `${noun} ${nameOf(item)}`, text: `appeared: ${size}` });
  }
  for (const { uuid, address, ...fields } of changed) {
    const name = `${noun} ${uuid ?? address}`;
    for (const [field, [before, after]] of Object.entries(fields)) {
      compare(`${name}.${field}`, before, after, lines);
    }
  }
  for (const item of removed) lines.push({ name: `${noun} ${nameOf(item)}`, text: "disappeared" });
}

// Return the lines of an entry's diff: {name, before, after}, or {name, text}.
export function linesOf(diff) {
  const lines = [];
  for (const [column, change] of Object.entries(diff)) {
    if (ITEMS[column] && !Array.isArray(change)) compareItems(ITEMS[column], change, lines);
    else if (Array.isArray(change)) compare(column, change[0], change[1], lines);
    else lines.push({ name: column, text: render(change) });
  }
  return lines;
}

const Line = ({ name, text, before, after }) => html`<li>
  <code>${name}</code> ${text ?? html`<del>${before}</del> → <ins>${after}</ins>`}
</li>`;

// Render a diff; what is more than a few lines is folded.
export function Diff({ diff }) {
  const lines = linesOf(diff);
  const rest = lines.slice(FEW);
  return html`<ul class="diff">${lines.slice(0, FEW).map((line) => html`<${Line} ...${line} />`)}</ul>
    ${rest.length > 0 && html`<details>
      <summary>${rest.length} more</summary>
      <ul class="diff">${rest.map((line) => html`<${Line} ...${line} />`)}</ul>
    </details>`}`;
}
