// The page around its views: header, menu, banner, and the title and icon of the tab.
import { useAbout } from "./about.js";
import { setNow } from "./ago.js";
import { clock } from "./format.js";
import { countNodes, findProblems, levelOf, praise, setIcon } from "./health.js";
import { announce } from "./live.js";
import { Login, Logout } from "./login.js";
import { useOutage, usePoll } from "./poll.js";
import { html, render, useEffect, useErrorBoundary, useMemo, useRef } from "./preact.js";
import { hrefOf, useLocation } from "./router.js";
import { findRoute, MENU } from "./routes.js";
import { ThemeSwitch } from "./theme.js";

function Menu({ path }) {
  return html`<nav aria-label="Views">
    ${MENU.map(
      (route) => html`<a href=${hrefOf(route.path)}
        aria-current=${route.path === path ? "page" : undefined}>${route.name ?? route.title}</a>`,
    )}
  </nav>`;
}

function Banner({ outage }) {
  const { error, answeredAt } = outage;
  const since = answeredAt ? `No answer since ${clock(answeredAt)}` : "No answer";
  const why = [error.title, error.detail].filter((text) => text && text !== "No answer").join(": ");
  return html`<p class="banner" role="alert">${since}${why && ` (${why})`}; trying again.</p>`;
}

// Say the fleet's health in the tab, and to screen readers when it changes. Return whether the
// API asks for credentials.
function useTab(title) {
  const { data, error } = usePoll("/v1/overview");
  const problems = useMemo(() => (data ? findProblems(data) : []), [data]);
  const now = data?.now;
  useMemo(() => now && setNow(now), [now]);
  const words = data ? problems.map(({ text }) => text).join(", ") || praise(countNodes(data)) : "";
  const level = data && !error ? levelOf(problems) : "unknown";
  useEffect(() => {
    document.title = [words, title, "nodetracker"].filter(Boolean).join(" – ");
  }, [words, title]);
  useEffect(() => setIcon(level), [level]);
  useEffect(() => announce(words), [words]);
  return error?.status === 401;
}

// Render a view; if that fails, say so and keep the rest of the page.
function View({ view, params }) {
  const [error] = useErrorBoundary();
  if (!error) return html`<${view} ...${params} />`;
  return html`<p class="error" role="alert">This view failed: ${error.message}. Reload the page to try again.</p>`;
}

function App() {
  const { path } = useLocation();
  const found = findRoute(path);
  const title = found?.route.title ?? "Not found";
  const outage = useOutage();
  const about = useAbout();
  const main = useRef(null);
  const isFirst = useRef(true);
  const isLoggedOut = useTab(title);
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
      ${!isLoggedOut && html`<${Menu} path=${path} />`}
      <span class="user">${about && html`<bdi>${about.user}</bdi>`}${about?.has_session && html`<${Logout} />`}<${ThemeSwitch} /></span>
    </header>
    ${outage && html`<${Banner} outage=${outage} />`}
    <main id="main" tabindex="-1" ref=${main} class=${outage ? "old" : ""}>${isLoggedOut ? html`<${Login} />` : html`
      ${!found?.route.hasOwnTitle && html`<h1 class=${path === "/" ? "hidden-text" : ""}>${title}</h1>`}
      ${found
        ? html`<${View} key=${path} view=${found.route.view} params=${found.params} />`
        : html`<p>No view has this address. <a href=${hrefOf("/")}>Go to the overview.</a></p>`}`}
    </main>
    <footer class="quiet">nodetracker ${about?.version} · <a href="../v1/openapi.json">API</a></footer>`;
}

render(html`<${App} />`, document.getElementById("app"));
