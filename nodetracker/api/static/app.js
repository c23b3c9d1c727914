// The page around its views: header, menu, banner, and the title and icon of the tab.
import { Fit } from "./fit.js";
import { HostPage, Hosts } from "./host.js";
import { Verbs } from "./keys.js";
import { Events, Moves, MOVING, Owned, Warnings } from "./lists.js";
import { NodePage } from "./node.js";
import { Overview } from "./overview.js";
import { announce, button, clocks, field, hrefOf, html, join, link, refreshAll, render, request, RequestForm, select, serverNow, setNow, subjectOf, time, useAbout, useChoice, useEffect, useErrorBoundary, useLayoutEffect, useList, useLocation, useMemo, useOutage, usePoll, useRef, useUpdates } from "./page.js";
import { Palette } from "./palette.js";
import { Wall } from "./wall.js";

// The views by path: name in the menu, component, and the heading if that is another.
const VIEWS = {
  "/": ["Overview", Overview],
  "/hosts": ["Hosts", Hosts],
  "/workloads": ["Workloads", Owned],
  "/warnings": ["Warnings", Warnings],
  "/events": ["Events", Events],
  "/fit": ["Fit", Fit, "Where would it fit?"],
  "/moves": ["Moves", Moves], // in the menu while there are any
};
const MOVED = { "/services": "/hosts", "/search": "/workloads" }; // views of earlier releases
const MOVES_MS = 60_000; // until it is asked again whether there are any
const LOGIN_FIELDS = [
  ["user", "User", { autocomplete: "username", required: true }],
  ["domain", "Domain", { defaultValue: "Default", required: true }],
  ["project", "Project", { placeholder: "empty: the whole system" }],
  ["password", "Password", { type: "password", autocomplete: "current-password", required: true }],
];

const ICONS = { good: ["1a7f37", "✔"], warning: ["b26a00", "◆"], bad: ["b3261e", "▲"] }; // by level: colour and sign

function iconOf(level) {
  const [color, sign] = ICONS[level] ?? ["4a5560", "–"];
  const square = `<rect width="16" height="16" rx="3" fill="#${color}"/>`;
  const text = `<text x="8" y="12" text-anchor="middle" font-size="11" fill="#fff">${sign}</text>`;
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">${square}${text}</svg>`)}`;
}

// Return the name and the view of a path, and the heading.
function findView(given) {
  const path = Object.hasOwn(MOVED, given) ? MOVED[given] : given;
  if (Object.hasOwn(VIEWS, path)) return VIEWS[path];
  if (path === "/wall") return ["Wall", Wall];
  if (path === "/host") return ["Host", HostPage];
  return /^\/node(s\/[^/]+)?$/.test(path) ? ["Node", NodePage] : ["Not found", NotFound];
}

const NotFound = () => html`<p>No view has this address. ${link("/", "Go to the overview.")}</p>`;

// Say what the view is about, or else its name with the fleet's health, and whether the API answers. Return whether it asks for credentials.
function useTab(name, isOverview, outage) {
  const { data, error } = usePoll("/v1/overview");
  const { text = "", level } = data?.health ?? {};
  const icon = error ? "unknown" : level;
  const { title: subject } = subjectOf();
  useMemo(() => data && setNow(data.now), [data]);
  useEffect(() => {
    document.title = join([outage && "No answer", subject || (isOverview ? text || name : name), "nodetracker"], " – ");
    document.querySelector("link[rel=icon]").href = iconOf(icon);
  }, [text, name, icon, subject, outage]);
  useEffect(() => announce(text), [text]);
  return error?.status === 401;
}

function banner({ error, answeredAt }) {
  const since = answeredAt ? `No answer since ${time(answeredAt).slice(11)}` : "No answer";
  return html`<p class="banner" role="alert">${since} (${join([error.title, error.detail], ": ")}); trying again. ${button("Retry now", refreshAll)}</p>`;
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
    <h1>Log in</h1>${LOGIN_FIELDS.map(([name, title, more]) => field({}, name, title, more))}
  <//>`;
}

async function logOut() {
  await request("/v1/session", { method: "DELETE" });
  location.reload();
}

function ThemeSwitch() {
  const [name, choose] = useChoice("theme", "system");
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = name;
  }, [name]);
  return html`<span class="theme">${select("Theme", name, ["system", "light", "dark"], choose)}</span>`;
}

function grafanaOf(url, host) {
  const dashboard = new URL(url);
  if (host) dashboard.searchParams.set("var-host", host);
  return dashboard.href;
}

// Return the entries of the menu.
function useMenu(path) {
  useUpdates(clocks);
  const { data } = useList("migrations", { limit: 1, status: MOVING }, Math.floor(serverNow() / MOVES_MS));
  return Object.entries(VIEWS).filter(([each]) => each !== "/moves" || path === each || data?.migrations.length > 0);
}

function Menu({ path }) {
  return html`<nav aria-label="Views">${useMenu(path).map(([each, [text]]) => html`
    <a href=${hrefOf(each)} aria-current=${each === (MOVED[path] ?? path) ? "page" : undefined}>${text}</a>`)}</nav>`;
}

function App() {
  const { path, query: { host, nodename } } = useLocation();
  const [name, view, title = name] = findView(path);
  const outage = useOutage();
  const about = useAbout();
  const main = useRef(null);
  const isFirst = useRef(true);
  const isLoggedOut = useTab(name, path === "/", Boolean(outage));
  useEffect(() => {
    if (!isFirst.current) main.current.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path, path === "/host" && host, path === "/node" && nodename]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  if (path === "/wall" && !isLoggedOut) return html`<main id="main" tabindex="-1" class="wall" ref=${main}><${View} view=${Wall} /></main>`;
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href=${hrefOf("/")}>nodetracker</a>
      ${!isLoggedOut && html`<${Menu} path=${path} />`}
      <span class="user">
        ${!isLoggedOut && html`<${Palette} views=${Object.entries(VIEWS).map(([each, [text, , heading = text]]) => [each, heading])} />`}
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
    ${!isLoggedOut && html`<${Verbs} />`}
    <footer class="quiet">nodetracker ${about?.version} · <a href="../v1/openapi.json">API</a>
      ${about?.grafana_url && html`· <a href=${grafanaOf(about.grafana_url, host)}>Grafana${host && html` of <bdi>${host}</bdi>`}</a>`}</footer>`;
}

const place = document.getElementById("app");
place.replaceChildren(); // what was seen while this was loaded
render(html`<${App} />`, place);
