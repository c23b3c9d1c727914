// Numbers, amounts, times and ages as text.

const MINUS = "\u2212";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const DECIMAL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNITS = ["MiB", "GiB", "TiB", "PiB"];
const RESOURCES = {
  VCPU: { name: "CPU", unit: "" },
  PCPU: { name: "Pinned CPU", unit: "" },
  MEMORY_MB: { name: "Memory", unit: "MiB" },
  DISK_GB: { name: "Disk", unit: "GiB" },
};

// Return the name of a resource class for people.
export const nameOf = (resource) => RESOURCES[resource]?.name ?? resource;

const signed = (text) => text.replace("-", MINUS);

// Return a number: "1,235", and below 100 with one decimal, "12.5".
export const number = (value) => signed((Math.abs(value) < 100 ? DECIMAL : WHOLE).format(value));

// Return "1 node", "2 nodes".
export const plural = (count, noun, nouns = `${noun}s`) =>
  `${number(count)} ${count === 1 ? noun : nouns}`;

// Return {factor, unit} with which amounts up to a value are shown: 1024 MiB -> GiB.
function scaleOf(value, unit) {
  let index = UNITS.indexOf(unit);
  if (index < 0) return { factor: 1, unit };
  let factor = 1;
  while (Math.abs(value) / factor >= 1024 && index < UNITS.length - 1) {
    factor *= 1024;
    index++;
  }
  return { factor, unit: UNITS[index] };
}

// Return an amount of a resource class with its unit: "1.5 GiB", "12".
export function amount(resource, value) {
  const { factor, unit } = scaleOf(value, RESOURCES[resource]?.unit ?? "");
  return `${number(value / factor)}${unit && ` ${unit}`}`;
}

// Return "12.5 of 64 GiB", or "17 GiB of 4.9 TiB" where the first is small.
export function amountOf(resource, value, whole) {
  const { factor, unit } = scaleOf(whole, RESOURCES[resource]?.unit ?? "");
  const isSmall = value > 0 && value / factor < 1 && factor > 1;
  const part = isSmall ? amount(resource, value) : number(value / factor);
  return `${part} of ${number(whole / factor)}${unit && ` ${unit}`}`;
}

// Return a share of 1 as "83 %".
export const percent = (share) => `${WHOLE.format(Math.floor(share * 100))}\u00a0%`;

// Return seconds as "12 s", "5 min", "3 h", "2 d".
export function age(seconds) {
  const value = Math.max(0, seconds);
  if (value < 100) return `${Math.floor(value)} s`;
  if (value < 6000) return `${Math.floor(value / 60)} min`;
  if (value < 172_800) return `${Math.floor(value / 3600)} h`;
  return `${WHOLE.format(Math.floor(value / 86_400))} d`;
}

// Return a Date, or a time of the API, as "2026-01-31 12:00:00" in the browser's zone.
export function time(value) {
  if (!value) return "never";
  const date = new Date(value);
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19).replace("T", " ");
}

// Return the time of day of a Date: "12:00:00".
export const clock = (date) => time(date).slice(11);
