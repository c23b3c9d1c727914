// Light and dark: the system's choice, or the one of the switch.
import { html, useEffect, useState } from "./preact.js";

const KEY = "nodetracker.theme";
const NAMES = ["system", "light", "dark"];

function load() {
  try {
    const name = localStorage.getItem(KEY);
    return NAMES.includes(name) ? name : NAMES[0];
  } catch {
    return NAMES[0]; // storage is switched off
  }
}

function apply(name) {
  document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // it lasts until the page is left
  }
}

apply(load());

// Render the switch.
export function ThemeSwitch() {
  const [name, setName] = useState(load);
  useEffect(() => apply(name), [name]);
  return html`<label class="theme">Theme
    <select value=${name} onChange=${(event) => setName(event.target.value)}>
      ${NAMES.map((each) => html`<option value=${each}>${each}</option>`)}
    </select>
  </label>`;
}
