// Numbers, times and ages as text.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const DECIMAL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const AGES = [["s", 1, 100], ["min", 60, 6000], ["h", 3600, 172_800], ["d", 86_400, Infinity]];

export const join = (words, separator = ", ") => words.filter(Boolean).join(separator);

// Return a number: "1,235", and below 100 with one decimal, "12.5".
export const number = (value) => (Math.abs(value) < 100 ? DECIMAL : WHOLE).format(value).replace("-", "\u2212");

// Return "1 node", "2 nodes".
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// Return seconds as "12 s", "5 min", "3 h", "2 d".
export function age(seconds) {
  const value = Math.max(0, seconds);
  const [unit, length] = AGES.find(([, , end]) => value < end);
  return `${WHOLE.format(Math.floor(value / length))} ${unit}`;
}

// Return a Date, or a time of the API, in the browser's zone and with its name: "2026-01-31 12:00:00 CET".
export const time = (value) => new Date(value).toLocaleString("sv", { dateStyle: "short", timeStyle: "long" });
