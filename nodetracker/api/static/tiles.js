// The map: every node a cell, coloured by how full it is, with a sign and an outline where its state is not as usual.
import { allocatedOf, amountOf, announce, compare, cpuOf, fillOf, help, html, join, legend, navigate, plural, reasonOf, resourceOf, sample, select, step, STEPS, stepOf, useChoice, useEffect, useLayoutEffect, useMemo, usePoll, useRef, useSame, useState, wordsOf } from "./page.js";

const FORMS = [ // from the largest: the size of a cell, the space between two, and whether it has a number and its host's name
  { width: 34, height: 22, gap: 2, hasNumber: true, hasLabels: true },
  { width: 30, height: 16, gap: 2, hasNumber: true, hasLabels: true },
  { width: 34, height: 22, gap: 2, hasNumber: true },
  { width: 30, height: 16, gap: 2, hasNumber: true },
  ...[16, 13, 11, 9, 7].map((size) => ({ width: size, height: size, gap: 2 })),
  ...[6, 5, 4, 3].map((size) => ({ width: size, height: size, gap: 1 })),
  { width: 2, height: 2, gap: 0 },
];
const HIGHEST = { wide: 120, narrow: 280 }; // px of the map
const HIGHEST_TITLED = 280;
const TITLE_HEIGHT = 16; // of a line of its own
const CUSTOM = "CUSTOM_";
const GROUPS = ["host", "traits"];
const PICTURE = { across: 520, highest: 100 };
const NARROW = 700;
const MOST_LABELS = 120; // nodes of which hosts are named
const LONGEST_LABEL = 12;
const LETTER = 6.7; // px of one in the font of labels
const ROWS = { ArrowUp: -1, ArrowDown: 1 };

const fullest = ({ amounts }) => Object.keys(amounts).reduce((most, name) => (fillOf(amounts[name]) > fillOf(amounts[most]) ? name : most));
const RESOURCES = { // by which cells are coloured -> the resource of a node
  "fullest resource": fullest, CPU: ({ amounts }) => cpuOf(amounts), memory: () => "MEMORY_MB", disk: () => "DISK_GB",
};

const useOf = (node, by) => node.amounts[RESOURCES[by](node)];

// Return the sign of a node's state, if that is not as usual.
function signOf({ state, status, maintenance, freshness }) {
  if (state !== "up") return "lost";
  if (freshness !== "fresh") return "unread";
  return (status === "disabled" || maintenance) && "set";
}

const SHAPES = { // of signs around a point, of a radius
  lost: (x, y, r) => `M${x - r} ${y + r}L${x} ${y - r}L${x + r} ${y + r}z`,
  unread: (x, y, r) => `M${x - r} ${y}L${x} ${y - r}L${x + r} ${y}L${x} ${y + r}z`,
  set: (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
};

// Return what to call hosts on labels: without a domain that all share, and of long names the end, in which they differ.
function shorten(hosts) {
  const [first = ""] = hosts;
  const domain = first.includes(".") ? first.slice(first.indexOf(".")) : "";
  const names = hosts.map((host) => (domain && host.endsWith(domain) ? host.slice(0, -domain.length) : host));
  return names.map((name) => (name.length > LONGEST_LABEL ? `…${name.slice(1 - LONGEST_LABEL)}` : name));
}

// Place the cells of groups of nodes in rows of a width; null if they would be higher than is allowed.
// hasTitles: labels are not hosts, and have lines of their own beside small cells.
function place(groups, labels, form, width, highest, hasTitles) {
  const { width: across, height: down, gap, hasLabels } = form;
  const space = hasLabels ? 10 : groups.some((nodes) => nodes.length > 1) && down > 6 ? down / 2 : 0;
  const [places, names] = [[], []];
  let [x, y] = [0, 0];
  const breakLine = () => {
    [x, y] = [0, y + down + gap];
  };
  for (const [index, nodes] of groups.entries()) {
    if (y + down > highest) return null;
    const text = hasLabels ? labels[index] : "";
    if (hasTitles && !hasLabels) {
      if (x > 0) breakLine();
      names.push({ x, y: y + TITLE_HEIGHT / 2, text: labels[index] });
      y += TITLE_HEIGHT;
    }
    const before = text ? text.length * LETTER + 4 : 0;
    if (x > 0 && x + before + (text ? nodes.length * (across + gap) : across) > width) breakLine();
    if (text) names.push({ x, y: y + down / 2, text, host: !hasTitles && nodes[0].host, width: before });
    x += before;
    for (const _ of nodes) {
      if (x > 0 && x + across > width) breakLine();
      places.push({ x, y, d: `M${x} ${y}h${across}v${down}h${-across}z` });
      x += across + gap;
    }
    x += space;
  }
  if (y + down > highest) return null;
  return { form, places, names, height: y + down };
}

function layOut({ groups, titles }, width, highest = titles ? HIGHEST_TITLED : width < NARROW ? HIGHEST.narrow : HIGHEST.wide) {
  const nodes = groups.flat();
  const labels = titles ?? shorten(groups.map(([{ host }]) => host));
  const forms = FORMS.filter(({ hasLabels }) => !hasLabels || nodes.length <= MOST_LABELS);
  for (const form of forms) {
    const found = place(groups, labels, form, width, highest, titles);
    if (found) return found;
  }
  return place(groups, labels, forms.at(-1), width, Infinity, titles);
}

const stepsOf = (nodes, by) => nodes.map((node) => stepOf(fillOf(useOf(node, by))));

// Return the cells of each colour as one path: [class, d], then outlines and signs.
function drawPaths(nodes, steps, { places, form: { width, height } }) {
  const paths = {};
  const add = (look, d) => (paths[look] ??= []).push(d);
  const [inset, radius] = height > 6 ? [1, Math.min(4, height / 4)] : [0.5, height / 6];
  nodes.forEach((node, index) => {
    const { x, y, d } = places[index];
    add(`fill-${steps[index]}`, d);
    const sign = signOf(node);
    if (!sign) return;
    const [w, h] = [width - 2 * inset, height - 2 * inset];
    add(height > 6 ? "tile-outline" : "tile-outline thin", `M${x + inset} ${y + inset}h${w}v${h}h${-w}z`);
    add("tile-sign", SHAPES[sign](width > height ? x + radius + 3 : x + width / 2, y + height / 2, radius));
  });
  const sorted = Object.entries(paths).sort(([a], [b]) => a.localeCompare(b)); // "fill" before "tile"
  return sorted.map(([look, each]) => [look, each.join("")]);
}

const percentOf = (use) => Math.floor(100 * fillOf(use));

const drawNumbers = (nodes, steps, { places, form: { width, height } }, by) => nodes.map((node, index) => {
  const { x, y } = places[index];
  return node.uuid && html`<text class=${`tile-number on-${steps[index]}`} x=${x + width - 3} y=${y + height / 2}>${percentOf(useOf(node, by))}</text>`;
});

function describe(node, by) {
  const { name } = resourceOf(RESOURCES[by](node));
  const use = useOf(node, by);
  const reason = reasonOf(node);
  const words = join([...wordsOf(node), reason && `“${reason}”`]);
  const amounts = node.uuid && [`${name} ${amountOf(RESOURCES[by](node), allocatedOf(use), use.limit)}`, `${percentOf(use)} % full`];
  return `${node.nodename || node.host}: ${join([words, ...(amounts || [])])}`;
}

function summarize(nodes, steps, by) {
  const counts = STEPS.map(() => 0);
  nodes.forEach(({ uuid }, index) => {
    if (uuid) counts[steps[index]] += 1;
  });
  const words = STEPS.map(([, title], step) => counts[step] > 0 && `${counts[step]} ${title}`);
  return `${plural(counts.reduce((sum, count) => sum + count), "node")} by their ${by}: ${join(words)}. Arrow keys name each, Enter opens it.`;
}

// Return the nearest place in the row above or below; the same one if there is none.
function findInRow(places, at, by) {
  const { x: from, y: row } = places[at];
  const rows = [...new Set(places.map(({ y }) => y))];
  const y = rows[rows.indexOf(row) + by];
  const distance = (index) => Math.abs(places[index].x - from);
  return places.reduce((best, each, index) => (each.y === y && (best === at || distance(index) < distance(best)) ? index : best), at);
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

const signs = Object.entries({ lost: "down or unreachable", unread: "not read recently", set: "disabled or in maintenance" }).map(([sign, text]) => [
  html`<svg class="swatch fill-1" viewBox="0 0 14 14" aria-hidden="true"><path class="part" d="M0 0h14v14h-14z" /><path class="tile-outline" d="M1 1h12v12h-12z" />
    <path class="tile-sign" d=${SHAPES[sign](7, 7, 3)} /></svg>`, text]);

const LEGEND = [...STEPS.map(([, title], index) => [sample(`fill-${index}`), title]), ...signs];

const hostsOf = (nodes) => ({ groups: [...Map.groupBy(nodes, ({ host }) => host).values()] });

// Return the nodes with the same custom traits, and these as titles.
function traitsOf(nodes, traits) {
  const names = new Map();
  for (const { name, nodes: uuids } of traits) {
    for (const uuid of uuids) names.set(uuid, [...(names.get(uuid) ?? []), name.slice(CUSTOM.length)]);
  }
  const groups = [...Map.groupBy(nodes, ({ uuid }) => join(names.get(uuid) ?? []))].sort(([a], [b]) => !a - !b || compare(a, b));
  return { groups: groups.map(([, each]) => each), titles: groups.map(([title]) => title || "no trait") };
}

// Return the map without its controls: paths, numbers and labels, which change only with the fleet; where they are changes only with its hosts.
// across: the width in px for which it is drawn, and then enlarged.
function useMap(nodes, by, { traits, across, highest } = {}) {
  const box = useRef(null);
  const width = useWidth(box);
  const scale = across ? Math.max(1, width / across) : 1;
  const grouped = useMemo(() => (traits ? traitsOf(nodes, traits) : hostsOf(nodes)), [nodes, traits]);
  const cells = useMemo(() => grouped.groups.flat(), [grouped]);
  const places = useSame(useMemo(() => grouped.groups.flatMap((group, index) => group.map(({ host }) => grouped.titles?.[index] ?? host)), [grouped]));
  const layout = useMemo(() => layOut(grouped, width / scale, highest), [places, !traits, width, scale, highest]);
  const steps = useMemo(() => stepsOf(cells, by), [cells, by]);
  const drawing = useMemo(() => html`<g>
    ${drawPaths(cells, steps, layout).map(([name, d]) => html`<path key=${name} class=${name} d=${d} />`)}
    ${layout.form.hasNumber && drawNumbers(cells, steps, layout, by)}
    ${layout.names.map(({ x, y, text }) => html`<text class="tile-label" x=${x} y=${y}>${text}</text>`)}</g>`, [cells, steps, layout, by]);
  return { box, width, scale, cells, steps, layout, drawing };
}

// Reads which node has which custom traits, and renders nothing.
function Traits({ count, onRead }) {
  const { data } = usePoll("/v1/traits", count);
  useEffect(() => onRead(data?.traits ?? null), [data]);
}

// Render the map; the arrow keys move between nodes, a click or Enter opens one.
export function Tiles({ nodes }) {
  const [at, setAt] = useState(-1);
  const [chosen, choose] = useChoice("tiles");
  const by = chosen in RESOURCES ? chosen : "fullest resource";
  const [group, setGroup] = useChoice("groups", GROUPS[0]);
  const [traits, setTraits] = useState(null);
  const { box, width, cells, steps, layout, drawing } = useMap(nodes, by, { traits: group === "traits" && traits });
  const { places, names, height, form } = layout;
  const summary = useMemo(() => summarize(cells, steps, by), [cells, steps, by]);
  const isIn = ({ offsetX, offsetY }, x, y, across) => offsetX >= x && offsetX < x + across && offsetY >= y && offsetY < y + form.height;
  const find = (event) => places.findIndex(({ x, y }) => isIn(event, x, y, form.width));
  const openHost = (host) => navigate("/host", { host });
  const open = (index) => {
    const { uuid, host } = cells[index] ?? {};
    if (uuid) navigate(`/nodes/${uuid}`);
    else if (host) openHost(host);
  };
  const click = (event) => {
    const label = names.find(({ host, x, y, width: across }) => host && isIn(event, x, y - form.height / 2, across));
    if (label) openHost(label.host);
    else open(find(event));
  };
  const go = (index) => {
    setAt(index);
    announce(describe(cells[index], by));
  };
  const press = (event) => {
    const { key } = event;
    const next = step(event, at, cells.length);
    if (key === "Enter") open(at);
    else if (at >= 0 && key in ROWS) go(findInRow(places, at, ROWS[key]));
    else if (next !== undefined) go(next);
  };
  const current = cells[at];
  return html`<div class="tiles" ref=${box}>
    <svg role="application" aria-label=${summary} tabindex="0" width=${width} height=${height}
      onPointerMove=${(event) => setAt(find(event))} onPointerLeave=${() => setAt(-1)}
      onClick=${click} onKeyDown=${press}
      onFocus=${() => at < 0 && go(0)} onBlur=${() => setAt(-1)}>
      ${drawing}
      ${current && html`<rect class="tile-cursor" ...${places[at]} width=${form.width} height=${form.height} />`}
    </svg>
    <div class="tools"><p class="tip" aria-hidden="true">${current ? html`<bdi>${describe(current, by)}</bdi>` : "\u00a0"}</p>
      ${select("Tiles by", by, Object.keys(RESOURCES), choose)}${select("Grouped by", group, GROUPS, setGroup)}
      ${group === "traits" && html`<${Traits} count=${nodes.length} onRead=${setTraits} />`}${help("cells", "What the cells mean", legend(LEGEND))}</div>
  </div>`;
}

// Render the map for who looks from afar.
export function Picture({ nodes }) {
  const { box, width, scale, layout: { height }, drawing } = useMap(nodes, "fullest resource", PICTURE);
  return html`<div class="tiles" ref=${box}><svg aria-hidden="true" width=${width} height=${height * scale} viewBox=${`0 0 ${width / scale} ${height}`}>${drawing}</svg></div>`;
}
