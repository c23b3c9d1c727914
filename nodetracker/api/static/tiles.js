// Tiles: every node a small square, coloured by its fullest resource.
import { fullestOf } from "./amounts.js";
import { join, plural } from "./format.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { navigate } from "./router.js";
import { legend, wordsOf } from "./widgets.js";

const STEPS = [[0, "below 25 %"], [0.25, "25–49 %"], [0.5, "50–74 %"], [0.75, "75–89 %"], [0.9, "90 % and more"]];
const SIZES = [[60, 24], [400, 16], [2500, 11], [Infinity, 7]]; // up to so many nodes, of so many pixels
const GAP = 2;
const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

const stepOf = (node) => STEPS.findLastIndex(([least]) => fullestOf(node) >= least);

// Return the classes of a node's square and of what is drawn on it.
function kindsOf(node) {
  const { state, status, freshness } = node;
  const isStale = state === "up" && (freshness === "stale" || freshness === "never");
  return [`step-${stepOf(node)}`, state !== "up" && "tile-hatch", isStale && "tile-dots", status === "disabled" && "tile-outline"].filter(Boolean);
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

// Return the squares of each kind as one path, so that 10,000 nodes are a few elements: [class, d].
function drawPaths(nodes, { places, size }) {
  const paths = {};
  nodes.forEach((node, index) => {
    for (const kind of kindsOf(node)) {
      const inset = kind === "tile-outline" ? 1 : 0;
      const side = size - 2 * inset;
      paths[kind] = `${paths[kind] ?? ""}M${places[index].x + inset} ${places[index].y + inset}h${side}v${side}h${-side}z`;
    }
  });
  return Object.entries(paths).sort(([a], [b]) => a.localeCompare(b));
}

const describe = (node) => `${node.nodename}: ${wordsOf(node).join(", ")}, ${Math.floor(100 * fullestOf(node))} % full`;

function summarize(nodes) {
  const counts = Object.groupBy(nodes, stepOf);
  const words = STEPS.map(([, title], step) => counts[step] && `${counts[step].length} ${title}`);
  return `${plural(nodes.length, "node")} by their fullest resource: ${join(words)}`;
}

function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => setWidth(Math.floor(contentRect.width)));
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
  const layout = useMemo(() => layOut(nodes, width), [nodes, width]);
  const paths = useMemo(() => drawPaths(nodes, layout), [nodes, layout]);
  const summary = useMemo(() => summarize(nodes), [nodes]);
  const { places, size, height } = layout;
  const find = ({ offsetX, offsetY }) =>
    places.findIndex(({ x, y }) => offsetX >= x && offsetX < x + size && offsetY >= y && offsetY < y + size);
  const open = (index) => nodes[index] && navigate(`/nodes/${nodes[index].uuid}`);
  const press = (event) => {
    if (event.key === "Enter") open(at);
    else if (event.key in KEYS) setAt(Math.min(nodes.length - 1, Math.max(0, at + KEYS[event.key])));
    else return;
    event.preventDefault();
  };
  const current = nodes[at];
  return html`<div class="tiles" ref=${box}>
    <svg role="img" aria-label=${summary} tabindex="0" width=${width} height=${height}
      onPointerMove=${(event) => setAt(find(event))} onPointerLeave=${() => setAt(-1)}
      onClick=${(event) => open(find(event))} onKeyDown=${press}
      onFocus=${() => at < 0 && setAt(0)} onBlur=${() => setAt(-1)}>
      ${paths.map(([name, d]) => html`<path key=${name} class=${name} d=${d} />`)}
      ${current && html`<rect class="tile-cursor" ...${places[at]} width=${size} height=${size} />`}
    </svg>
    <p class="tip" aria-hidden="true">${current ? html`<bdi>${describe(current)}</bdi>` : "\u00a0"}</p>
    <div aria-hidden="true">${legend([
      ...STEPS.map(([, title], step) => [html`<span class=${`swatch step-${step}`}></span>`, title]),
      [sample("hatch"), "down"], [sample("outline"), "disabled"], [sample("dots"), "stale"],
    ])}</div>
  </div>`;
}
