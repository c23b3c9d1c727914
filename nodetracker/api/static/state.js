// The state of a node or service: a sign and a word, never colour alone.
import { signOf } from "./health.js";
import { html } from "./preact.js";

const SIGNS = {
  up: ["●", "good"],
  down: ["▲", "bad"],
  unreachable: ["▲", "bad"],
  disabled: ["◼", "quiet"],
  maintenance: ["◼", "quiet"],
  error: ["▲", "bad"],
  late: ["◆", "warning"],
  stale: ["◆", "warning"],
  never: ["◇", "warning"],
};
const TITLES = { never: "never read" };

// Render one word with the sign of its level, by default its own.
export function Mark({ word, level: given }) {
  const [sign, level] = given ? [signOf(given), given] : SIGNS[word] ?? ["", "quiet"];
  return html`<span class=${`mark ${level}`}><span aria-hidden="true">${sign}</span> ${TITLES[word] ?? word}</span>`;
}

// Return what is to be said of a node: its state, and what is not as usual.
export function wordsOf({ state, status, maintenance, freshness }) {
  const words = [state];
  if (status === "disabled") words.push("disabled");
  if (maintenance) words.push("maintenance");
  if (freshness && freshness !== "fresh" && (state === "up" || freshness === "never")) {
    words.push(freshness);
  }
  return words;
}

// Render the state of a node or service; lines may break between its words.
export const State = ({ of }) => wordsOf(of).map((word) => [html`<${Mark} word=${word} />`, " "]);
