// The page around its views: header, menu, banner, and the title and icon of the tab.
import { request, useAbout, useOutage, usePoll } from "./api.js";
import { Fit } from "./fit.js";
import { join, time } from "./format.js";
import { Changes, Moves, Services, Warnings } from "./lists.js";
import { NodePage } from "./node.js";
import { Overview } from "./overview.js";
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { hrefOf, useLocation } from "./router.js";
import { announce, button, link, RequestForm, select, setNow } from "./widgets.js";
import { Search } from "./workloads.js";

// The views by path: name in the menu, component, and the heading if that is another.
const VIEWS = {
  "/": ["Overview", Overview],
  "/services": ["Services", Services],
  "/warnings": ["Warnings", Warnings],
  "/moves": ["Moves", Moves],
  "/changes": ["Changes", Changes],
  "/search": ["Search", Search],
  "/fit": ["Fit", Fit, "Where would it fit?"],
};
const LOGIN_FIELDS = [
  { title: "User", name: "user", autocomplete: "username", required: true },
  { title: "Domain", name: "domain", defaultValue: "Default", required: true },
  { title: "Project", name: "project", placeholder: "empty: the whole system" },
  { title: "Password", name: "password", type: "password", autocomplete: "current-password", required: true },
];

// Return the name and the view of a path, and the heading. A node that is shown has its own.
function findView(path) {
  if (Object.hasOwn(VIEWS, path)) return VIEWS[path];
  return /^\/node(s\/[^/]+)?$/.test(path) ? ["Node", NodePage] : ["Not found", NotFound];
}

const NotFound = () => html`<p>No view has this address. ${link("/", "Go to the overview.")}</p>`;

// Say the fleet's health in the tab, and to screen readers. Return whether the API asks for credentials.
function useTab(name) {
  const { data, error } = usePoll("/v1/overview");
  const { text = "", level } = data?.health ?? {};
  const icon = (!error && level) || "unknown";
  useMemo(() => data && setNow(data.now), [data]);
  useEffect(() => {
    document.title = join([text, name, "nodetracker"], " – ");
    const shown = document.querySelector("link[rel=icon]");
    shown.href = shown.href.replace(/[^/]*$/, `icon-${icon}.svg`);
  }, [text, name, icon]);
  useEffect(() => announce(text), [text]);
  return error?.status === 401;
}

function banner({ error, answeredAt }) {
  const since = answeredAt ? `No answer since ${time(answeredAt).slice(11)}` : "No answer";
  return html`<p class="banner" role="alert">${since} (${join([error.title, error.detail], ": ")}); trying again.</p>`;
}

// Render a view; if that fails, say so and keep the rest of the page.
function View({ view, uuid }) {
  const [error] = useErrorBoundary();
  if (!error) return html`<${view} uuid=${uuid} />`;
  return html`<p class="error" role="alert">This view failed: ${error.message}. Reload the page to try again.</p>`;
}

function Login() {
  const send = (form) => {
    const filled = [...form].filter(([, value]) => value);
    return request("/v1/session", { method: "POST", body: Object.fromEntries(filled) });
  };
  return html`<${RequestForm} class="login" submit="Log in" send=${send} onDone=${() => location.reload()}>
    <h1>Log in</h1>${LOGIN_FIELDS.map(({ title, ...field }) => html`<label>${title} <input ...${field} /></label>`)}
  <//>`;
}

async function logOut() {
  await request("/v1/session", { method: "DELETE" });
  location.reload();
}

// Read or write the browser's storage, which may be switched off.
function store(method, ...values) {
  try {
    return localStorage[method]("nodetracker.theme", ...values);
  } catch {
    return null; // a choice lasts until the page is left
  }
}

function ThemeSwitch() {
  const [name, setName] = useState(() => store("getItem") ?? "system");
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = name;
    store("setItem", name);
  }, [name]);
  return html`<span class="theme">${select("Theme", name, [["system"], ["light"], ["dark"]], setName)}</span>`;
}

function App() {
  const { path } = useLocation();
  const [name, view, title = name] = findView(path);
  const outage = useOutage();
  const about = useAbout();
  const main = useRef(null);
  const isFirst = useRef(true);
  const isLoggedOut = useTab(name);
  useEffect(() => {
    if (!isFirst.current) main.current.focus();
    isFirst.current = false;
  }, [path]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href=${hrefOf("/")}>nodetracker</a>
      ${!isLoggedOut && html`<nav aria-label="Views">${Object.entries(VIEWS).map(([each, [text]]) => html`
        <a href=${hrefOf(each)} aria-current=${each === path ? "page" : undefined}>${text}</a>`)}</nav>`}
      <span class="user">
        ${about && html`<bdi>${about.user}</bdi>`}
        ${about?.has_session && button("Log out", logOut)}
        <${ThemeSwitch} />
      </span>
    </header>
    ${outage && banner(outage)}
    <main id="main" tabindex="-1" ref=${main} class=${outage && "old"}>${isLoggedOut ? html`<${Login} />` : html`
      <h1 class=${path === "/" && "hidden-text"}>${title}</h1>
      <${View} key=${path} view=${view} uuid=${path.split("/")[2]} />`}
    </main>
    <footer class="quiet">nodetracker ${about?.version} · <a href="../v1/openapi.json">API</a></footer>`;
}

render(html`<${App} />`, document.getElementById("app"));
