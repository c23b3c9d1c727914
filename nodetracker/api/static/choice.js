// A filter of which one value is chosen, in the address.
import { html } from "./preact.js";
import { setQuery, useLocation } from "./router.js";

// Render a choice between [value, text] pairs, and `all` of them.
export function Choice({ name, title, values, all = "all" }) {
  const value = useLocation().query[name] ?? "";
  const choose = ({ target }) => setQuery({ [name]: target.value, page: "", marker: "" });
  return html`<label>${title}
    <select value=${value} onChange=${choose}>
      <option value="">${all}</option>
      ${values.map(([each, text]) => html`<option value=${each}>${text}</option>`)}
    </select>
  </label>`;
}
