// Tiles: every node a small square, coloured by its fullest resource.
//
// All squares of a kind are one path, so that 10,000 nodes are a few elements.
import { fillOf, listResources } from "./amounts.js";
import { join, percent, plural } from "./format.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { navigate } from "./router.js";
import { legend, wordsOf } from "./widgets.js";

const STEPS = [0, 0.25, 0.5, 0.75, 0.9];
const STEP_TITLES = ["below 25 %", "25–49 %", "50–74 %", "75–89 %", "90 % and more"];
const SIZES = [[60, 24], [400, 16], [2500, 11], [Infinity, 7]]; // up to so many nodes, of so many pixels
const GAP = 2;
const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

const fullestOf = ({ amounts }) => Math.max(0, ...listResources(amounts).map((name) => fillOf(amounts[name])));

const stepOf = (node) => {
  const fill = fullestOf(node);
  return STEPS.findLastIndex((step) => fill >= step);
};

function overlayOf({ state, freshness }) {
  if (state !== "up") return "hatch";
  return (freshness === "stale" || freshness === "never") && "dots";
}

// Return the place of every node in rows of a width; between hosts of several nodes is a gap.
function layOut(nodes, width) {
  const [, size] = SIZES.find(([count]) => nodes.length <= count);
  const space = new Set(nodes.map(({ host }) => host)).size < nodes.length ? size / 2 : 0;
  let x = 0;
  let y = 0;
  const places = nodes.map((node, index) => {
    if (index > 0 && nodes[index - 1].host !== node.host) x += space;
    if (x + size > width) {
      x = 0;
      y += size + GAP;
    }
    const place = { x, y };
    x += size + GAP;
    return place;
  });
  return { places, size, height: y + size };
}

// Return the squares of each kind as one path: [class, d].
function drawPaths(nodes, { places, size }) {
  const paths = new Map();
  const add = (name, { x, y }, inset = 0) => {
    const side = size - 2 * inset;
    const d = `M${x + inset} ${y + inset}h${side}v${side}h${-side}z`;
    paths.set(name, (paths.get(name) ?? "") + d);
  };
  nodes.forEach((node, index) => {
    add(`step-${stepOf(node)}`, places[index]);
    const overlay = overlayOf(node);
    if (overlay) add(`tile-${overlay}`, places[index]);
    if (node.status === "disabled") add("tile-outline", places[index], 1);
  });
  return [...paths].sort(([a], [b]) => a.localeCompare(b));
}

const describe = (node) => `${node.nodename}: ${wordsOf(node).join(", ")}, ${percent(fullestOf(node))} full`;

function summarize(nodes) {
  const counts = Map.groupBy(nodes, stepOf);
  const words = STEP_TITLES.map((title, step) => counts.has(step) && `${counts.get(step).length} ${title}`);
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
  const find = ({ currentTarget, clientX, clientY }) => {
    const { left, top } = currentTarget.getBoundingClientRect();
    const [toX, toY] = [clientX - left, clientY - top];
    return places.findIndex(({ x, y }) => toX >= x && toX < x + size && toY >= y && toY < y + size);
  };
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
      <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="2" height="5" class="tile-ink" />
      </pattern>
      <pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse">
        <circle cx="2.5" cy="2.5" r="1.3" class="tile-ink" />
      </pattern>
      ${paths.map(([name, d]) => html`<path key=${name} class=${name} d=${d} />`)}
      ${current && html`<rect class="tile-cursor" ...${places[at]} width=${size} height=${size} />`}
    </svg>
    <p class="tip" aria-hidden="true">${current ? html`<bdi>${describe(current)}</bdi>` : "\u00a0"}</p>
    <div aria-hidden="true">${legend([
      ...STEP_TITLES.map((title, step) => [html`<span class=${`swatch step-${step}`}></span>`, title]),
      [sample("hatch"), "down"], [sample("outline"), "disabled"], [sample("dots"), "stale"],
    ])}</div>
  </div>`;
}
