// Numbers, amounts, times and ages as text.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const DECIMAL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNITS = ["MiB", "GiB", "TiB", "PiB"];
const AGES = [["s", 1, 100], ["min", 60, 6000], ["h", 3600, 172_800], ["d", 86_400, Infinity]];

// The resource classes that all nodes have, in order.
export const RESOURCES = {
  VCPU: { name: "CPU", noun: "CPUs" },
  PCPU: { name: "Pinned CPU", noun: "pinned CPUs" },
  MEMORY_MB: { name: "Memory", noun: "memory", unit: "MiB" },
  DISK_GB: { name: "Disk", noun: "disk", unit: "GiB" },
};

export const join = (words, separator = ", ") => words.filter(Boolean).join(separator);

// Return a number: "1,235", and below 100 with one decimal, "12.5".
export const number = (value) => (Math.abs(value) < 100 ? DECIMAL : WHOLE).format(value).replace("-", "\u2212");

// Return "1 node", "2 nodes".
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// Return the factor and the unit with which amounts up to a value are shown: 1024 MiB -> GiB.
function scaleOf(resource, value) {
  const first = UNITS.indexOf(RESOURCES[resource]?.unit);
  if (first < 0) return [1, ""];
  const steps = Math.floor(Math.log2(Math.abs(value)) / 10);
  const step = Math.min(Math.max(steps, 0), UNITS.length - 1 - first);
  return [1024 ** step, ` ${UNITS[first + step]}`];
}

export function amount(resource, value) {
  const [factor, unit] = scaleOf(resource, value);
  return number(value / factor) + unit;
}

export const memory = (mb) => amount("MEMORY_MB", mb);
export const disk = (gb) => amount("DISK_GB", gb);

// Return "12.5 of 64 GiB", or "17 GiB of 4.9 TiB" where the first is small.
export function amountOf(resource, value, whole) {
  const [factor] = scaleOf(resource, whole);
  const isSmall = value > 0 && value < factor && factor > 1;
  return `${isSmall ? amount(resource, value) : number(value / factor)} of ${amount(resource, whole)}`;
}

// Return a share of 1 as "83 %".
export const percent = (share) => `${WHOLE.format(Math.floor(share * 100))}\u00a0%`;

// Return seconds as "12 s", "5 min", "3 h", "2 d".
export function age(seconds) {
  const value = Math.max(0, seconds);
  const [unit, length] = AGES.find(([, , end]) => value < end);
  return `${WHOLE.format(Math.floor(value / length))} ${unit}`;
}

// Return a Date, or a time of the API, as "2026-01-31 12:00:00" in the browser's zone, as Swedes write it.
export const time = (value) => new Date(value).toLocaleString("sv");
