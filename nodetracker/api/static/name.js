// Names of any length and direction.
import { html } from "./preact.js";

const SHORT = 24; // characters of a name that is not broken

// Render a name.
export const Name = ({ text }) =>
  html`<bdi class=${text?.length > SHORT ? "long" : "name"}>${text}</bdi>`;
