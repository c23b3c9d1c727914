// Where would it fit, and why not?
import { amount, answer, column, field, fixed, HOST, html, list, mark, NODE, nodeLink, numeric, plural, QueryForm, quiet, section, sentence, Table, useAbout, useList, useLocation } from "./page.js";
import { amountColumn, RESOURCE } from "./workloads.js";

const NUMBERS = [ // name in the address, title, resource, and its units in that of the field
  ["cpus", "CPUs", "VCPU", 1],
  ["pinned", "Pinned CPUs", "PCPU", 1],
  ["memory", "Memory (GiB)", "MEMORY_MB", 1024],
  ["disk", "Disk (GiB)", "DISK_GB", 1],
  ["gpus", "GPUs", "PGPU", 1],
];
const TEXTS = [ // name in the address, title, parameter, example
  ["pages", "Page size", "page_size", "2MB"],
  ["pci", "PCI devices", "pci", "ALIAS:1"],
  ["traits", "Traits", "required", "HW_CPU_X86_AVX2, CUSTOM_…"],
];
const PAGES = ["small", "large", "any", "2MB", "1GB"];
const LIMIT = 100;

function columnsFor(wanted) {
  const left = (id, title, resource) => numeric(id, title, (free) =>
    html`<span>${amount(resource, free)} <span class="quiet">→ ${amount(resource, free - (wanted[resource] ?? 0))}</span></span>`);
  return [
    NODE, HOST,
    left("free_vcpus", "CPUs left", "VCPU"),
    left("free_memory_mb", "Memory left", "MEMORY_MB"),
    left("free_disk_gb", "Disk left", "DISK_GB"),
    column("left", "Also left", (all) => all.map(({ text }) => text).join("; ")),
  ];
}

const texts = (explanations) => list(explanations.map(({ text }) => sentence(text)));
const place = (near) => html`${nodeLink(near)} of <bdi>${near.host}</bdi>`;

const excludedNodes = ({ total_nodes: total, checks, nearest, further }) => section("What excludes the others", html`
  ${checks.length > 0 ? list(checks.map(({ text }) => text)) : quiet(total ? "Nothing: every node fits." : "The fleet has no node.")}
  ${nearest && html`<p>The nearest is ${place(nearest)}:</p>${texts(nearest.explanations)}`}
  ${further.length > 0 && html`<p>Then come</p>${list(further.map((near) => html`${place(near)}${texts(near.explanations)}`))}`}`);

const VERDICTS = [
  RESOURCE,
  amountColumn("requested", "Requested"),
  amountColumn("free", "Free"),
  amountColumn("limit", "Limit", "unlimited"),
  column("fits", "Verdict", (fits) => mark(fits ? "fits" : "too little", fits ? "good" : "warning")),
];

function dryRun({ host, nodename, fits, explanations, resources, pci }) {
  const devices = pci.map(({ alias, count, usable }) => `${alias}: ${count} requested, ${usable} usable`);
  return html`<h3>${place({ host, nodename })}</h3>
    ${fits ? html`<p>${mark("It would take it.", "good")}</p>` : texts(explanations)}
    ${fixed("Amounts", VERDICTS, resources.filter(({ requested }) => requested > 0))}
    ${list(devices.map(sentence))}`;
}

const whyNot = (name, nodes) => section(html`Why not on <bdi>${name}</bdi>?`, nodes.length > 0 ? nodes.map(dryRun)
  : quiet("No host or node has this name."), "why");

function Candidates({ wanted, query, why }) {
  const resources = Object.entries(wanted).map(([name, value]) => `${name}:${value}`).join();
  return answer(useList("candidates", { limit: LIMIT, resources, ...query }, 0), ({ candidates, excluded, why: nodes }) => html`
    ${why && whyNot(why, nodes)}
    ${section(`${plural(candidates.length, "node")}${excluded ? "" : " or more"} would take it`, candidates.length > 0
      && html`<${Table} caption="Candidates, best first" rows=${candidates} columns=${columnsFor(wanted)} />`, "fit")}
    ${excluded && excludedNodes(excluded)}`, "Looking…");
}

const words = (text = "") => text.split(/[\s,]+/).filter(Boolean);

export function Fit() {
  const { query } = useLocation();
  const known = { pages: PAGES, pci: useAbout()?.pci_aliases };
  const count = (name, title, step = 1) => field(query, name, title, { type: "number", min: 0, step });
  const amounts = NUMBERS.map(([name, , resource, factor]) => [resource, Math.ceil(Number(query[name] ?? 0) * factor)]);
  const more = words(query.more).map((text) => text.split(/[:=]/));
  const wanted = [...amounts.filter(([, value]) => value > 0), ...more.map(([name, value = 1]) => [name, value])];
  const filled = {
    numa_cells: query.cells, why: query.why,
    ...Object.fromEntries(TEXTS.map(([name, , parameter]) => [parameter, words(query[name]).join() || undefined])),
  };
  const isAsked = wanted.length > 0 || Object.values(filled).some(Boolean);
  return html`<${QueryForm} submit="Find nodes">
      ${NUMBERS.map(([name, title]) => count(name, title, "any"))}
      ${count("cells", "NUMA cells")}
      ${TEXTS.map(([name, title, , placeholder]) => field(query, name, title, { placeholder, list: known[name] && `known-${name}`, class: known[name] ? "" : "grow" }))}
      ${field(query, "more", "Other resources", { placeholder: "VGPU:1, CUSTOM_…:2", class: "grow" })}
      ${field(query, "why", "Why not on", { placeholder: "host or node" })}
      ${Object.entries(known).map(([name, values = []]) => html`<datalist id=${`known-${name}`}>${values.map((value) => html`<option value=${value} />`)}</datalist>`)}
    <//>
    ${isAsked && html`<${Candidates} wanted=${wanted.length > 0 ? Object.fromEntries(wanted) : { VCPU: 0 }} query=${filled} why=${query.why} />`}`;
}
