// The session of a browser: a form to log in to Keystone, and a button to log out.
import { request } from "./api.js";
import { ErrorText } from "./dialog.js";
import { html, useState } from "./preact.js";

const FIELDS = [
  { name: "user", title: "User", autocomplete: "username", required: true },
  { name: "domain", title: "Domain", value: "Default", required: true },
  { name: "project", title: "Project", hint: "empty: the whole system" },
  { name: "password", title: "Password", type: "password", autocomplete: "current-password", required: true },
];

// Render the form; after the login, the page is loaded again.
export function Login() {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const filled = [...new FormData(event.target)].filter(([, value]) => value);
    setBusy(true);
    const answer = await request("/v1/session", { method: "POST", body: Object.fromEntries(filled) });
    setBusy(false);
    if (answer.error) setError(answer.error);
    else location.reload();
  };
  return html`<form class="login" onSubmit=${submit}>
    <h1>Log in</h1>
    ${FIELDS.map(({ name, title, hint, value, type = "text", ...more }) => html`<label>${title}
      <input name=${name} type=${type} defaultValue=${value} placeholder=${hint} ...${more} /></label>`)}
    ${error && html`<${ErrorText} error=${error} />`}
    <button class="primary" disabled=${isBusy}>Log in</button>
  </form>`;
}

// Render the button that ends the session.
export function Logout() {
  const end = async () => {
    await request("/v1/session", { method: "DELETE" });
    location.reload();
  };
  return html`<button type="button" onClick=${end}>Log out</button>`;
}
