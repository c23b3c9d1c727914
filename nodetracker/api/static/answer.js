// What is shown of an answer that is not here yet, or is an error.
import { ErrorText } from "./dialog.js";
import { html } from "./preact.js";

// Render an answer of usePoll by a function of its data.
export function Answer({ poll, children: render }) {
  const { data, error } = poll;
  const isRefused = error && error.status >= 400 && error.status < 500;
  if (isRefused || (error && data === null)) return html`<${ErrorText} error=${error} />`;
  if (data === null) return html`<p class="quiet">Loading…</p>`;
  return render(data);
}
