// Tiles: every node a small square, coloured by how full it is of a resource, or by its state.
import { allocatedOf, amountOf, announce, cpuOf, fillOf, html, join, legend, navigate, plural, resourceOf, select, step, useChoice, useLayoutEffect, useMemo, useRef, useState, wordsOf } from "./page.js";

const STEPS = [[0, "below 25 %"], [0.25, "25–49 %"], [0.5, "50–74 %"], [0.75, "75–89 %"], [0.9, "90 % and more"]];
const SIZES = [[60, 24], [400, 16], [2500, 11], [Infinity, 7]]; // up to so many nodes, of so many pixels
const GAP = 2;
const ROWS = { ArrowUp: -1, ArrowDown: 1 };

const fullest = ({ amounts }) => Object.keys(amounts).reduce((most, name) => (fillOf(amounts[name]) > fillOf(amounts[most]) ? name : most));
const RESOURCES = { // by which tiles are coloured -> the resource of a node
  "fullest resource": fullest, CPU: ({ amounts }) => cpuOf(amounts), memory: () => "MEMORY_MB", disk: () => "DISK_GB", state: fullest,
};
const SEVERITIES = ["down or unreachable", "not read", "with warnings", "disabled or in maintenance", "fine"];

const titlesOf = (by) => (by === "state" ? SEVERITIES : STEPS.map(([, title]) => title));
const classOf = (by, step) => `${by === "state" ? "rank" : "step"}-${step}`;

function stepOf(node, by) {
  const fill = fillOf(node.amounts[RESOURCES[by](node)]);
  return by === "state" ? SEVERITIES.length - 1 - node.severity : Math.max(0, STEPS.findLastIndex(([least]) => fill >= least));
}

// Return the classes of a node's square and of what is drawn on it.
function kindsOf(node, by) {
  const { state, status, freshness } = node;
  const isStale = state === "up" && (freshness === "stale" || freshness === "never");
  return [classOf(by, stepOf(node, by)), state !== "up" && "tile-hatch", isStale && "tile-dots", status === "disabled" && "tile-outline"].filter(Boolean);
}

// Return a place {x, y} for every node in rows of a width; between hosts of several nodes is a gap.
function layOut(nodes, width) {
  const [, size] = SIZES.find(([count]) => nodes.length <= count);
  const space = new Set(nodes.map(({ host }) => host)).size < nodes.length ? size / 2 : 0;
  let [x, y] = [0, 0];
  const places = nodes.map(({ host }, index) => {
    if (index > 0 && nodes[index - 1].host !== host) x += space;
    if (x + size > width) [x, y] = [0, y + size + GAP];
    x += size + GAP;
    return { x: x - size - GAP, y };
  });
  return { places, size, height: y + size };
}

// Return the squares of each kind as one path: [class, d].
function drawPaths(nodes, { places, size }, by) {
  const paths = {};
  nodes.forEach((node, index) => {
    for (const kind of kindsOf(node, by)) {
      const inset = kind === "tile-outline" ? 1 : 0;
      const side = size - 2 * inset;
      paths[kind] = `${paths[kind] ?? ""}M${places[index].x + inset} ${places[index].y + inset}h${side}v${side}h${-side}z`;
    }
  });
  return Object.entries(paths).sort(([a], [b]) => a.localeCompare(b));
}

function describe(node, by) {
  const resource = RESOURCES[by](node);
  const use = node.amounts[resource];
  const { name } = resourceOf(resource);
  const amounts = node.uuid && [`${name} ${amountOf(resource, allocatedOf(use), use.limit)}`, `${Math.floor(100 * fillOf(use))} % full`];
  return `${node.nodename || node.host}: ${join([...wordsOf(node), ...(amounts || [])])}`;
}

function summarize(nodes, by) {
  const counts = Object.groupBy(nodes, (node) => stepOf(node, by));
  const words = titlesOf(by).map((title, step) => counts[step] && `${counts[step].length} ${title}`);
  return `${plural(nodes.length, "node")} by their ${by}: ${join(words)}. Arrow keys name each, Enter opens it.`;
}

// Return the nearest place in the row above or below; the same one if there is none.
function findInRow(places, at, y) {
  const distance = (index) => Math.abs(places[index].x - places[at].x);
  return places.reduce((best, place, index) => (place.y === y && (best === at || distance(index) < distance(best)) ? index : best), at);
}

function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(element.current.clientWidth);
    const observer = new ResizeObserver(measure);
    measure(); // before the first frame
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

const sample = (name) => html`<svg class="swatch" viewBox="0 0 12 12">
  <rect class="step-1" width="12" height="12" /><rect class=${`tile-${name}`} x="1" y="1" width="10" height="10" />
</svg>`;

// Render the tiles of nodes; the arrow keys move between them, a click or Enter opens one.
export function Tiles({ nodes }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [at, setAt] = useState(-1);
  const [chosen, choose] = useChoice("tiles");
  const by = chosen in RESOURCES ? chosen : "fullest resource";
  const layout = useMemo(() => layOut(nodes, width), [nodes, width]);
  const paths = useMemo(() => drawPaths(nodes, layout, by), [nodes, layout, by]);
  const summary = useMemo(() => summarize(nodes.filter(({ uuid }) => uuid), by), [nodes, by]);
  const { places, size, height } = layout;
  const find = ({ offsetX, offsetY }) =>
    places.findIndex(({ x, y }) => offsetX >= x && offsetX < x + size && offsetY >= y && offsetY < y + size);
  const open = (index) => {
    const { uuid, host } = nodes[index] ?? {};
    if (host) navigate(uuid ? `/nodes/${uuid}` : "/host", uuid ? {} : { host });
  };
  const go = (index) => {
    setAt(index);
    announce(describe(nodes[index], by));
  };
  const press = (event) => {
    const { key } = event;
    const next = step(event, at, nodes.length);
    if (key === "Enter") open(at);
    else if (at >= 0 && key in ROWS) go(findInRow(places, at, places[at].y + ROWS[key] * (size + GAP)));
    else if (next !== undefined) go(next);
  };
  const current = nodes[at];
  return html`<div class="tiles" ref=${box}>
    <svg role="application" aria-label=${summary} tabindex="0" width=${width} height=${height}
      onPointerMove=${(event) => setAt(find(event))} onPointerLeave=${() => setAt(-1)}
      onClick=${(event) => open(find(event))} onKeyDown=${press}
      onFocus=${() => at < 0 && go(0)} onBlur=${() => setAt(-1)}>
      ${paths.map(([name, d]) => html`<path key=${name} class=${name} d=${d} />`)}
      ${current && html`<rect class="tile-cursor" ...${places[at]} width=${size} height=${size} />`}
    </svg>
    <p class="tip" aria-hidden="true">${current ? html`<bdi>${describe(current, by)}</bdi>` : "\u00a0"}</p>
    <div class="filters">${select("Tiles by", by, Object.keys(RESOURCES), choose)}
      <div aria-hidden="true">${legend([
        ...titlesOf(by).map((title, step) => [html`<span class=${`swatch ${classOf(by, step)}`}></span>`, title]),
        [sample("hatch"), "down"], [sample("outline"), "disabled"], [sample("dots"), "stale"],
      ])}</div></div>
  </div>`;
}
