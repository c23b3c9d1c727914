// Where would it fit, and why not?
import { amount, answer, column, field, fixed, HOST, hostLink, html, join, link, list, mark, NODE, nodeLink, number, numeric, plural, QueryForm, quiet, section, sentence, Table, useAbout, useList, useLocation, usePoll } from "./page.js";
import { RESOURCE } from "./workloads.js";

const NUMBERS = [ // name in the address, title, resource, and its units in that of the field
  ["cpus", "CPUs", "VCPU", 1],
  ["pinned", "Pinned CPUs", "PCPU", 1],
  ["memory", "Memory (GiB)", "MEMORY_MB", 1024],
  ["disk", "Disk (GiB)", "DISK_GB", 1],
];
const TEXTS = [ // name in the address, title, parameter, example
  ["pages", "Page size", "page_size", "2MB"],
  ["pci", "PCI devices", "pci", "ALIAS:1"],
  ["traits", "Traits", "required", "HW_CPU_X86_AVX2, CUSTOM_…"],
];
const PAGES = ["small", "large", "any", "2MB", "1GB"];
const LIMIT = 100;
const GPUS = "PGPU";

let lastQuery = null;

// Return the request that was asked last, as the address has it; null before the first one.
export const lastRequest = () => lastQuery;

function columnsFor(wanted) {
  const left = (id, title, resource) => numeric(id, title, (free) => html`<span>${amount(resource, free, "free")}${" "}
    <span class="quiet">→ ${amount(resource, free - (wanted[resource] ?? 0), "free", [free, "free"])}</span></span>`);
  return [
    NODE, HOST,
    left("free_vcpus", "CPUs left", "VCPU"),
    left("free_memory_mb", "Memory left", "MEMORY_MB"),
    left("free_disk_gb", "Disk left", "DISK_GB"),
    numeric("count", "Fits", (count) => (count === null ? "" : number(count))),
    column("left", "Also left", (all) => all.map(({ text }) => text).join("; ")),
  ];
}

const texts = (explanations) => list(explanations.map(({ text }) => sentence(text)));
const place = (near) => html`${nodeLink(near)} of ${hostLink(near.host)}`;

function excludedNodes({ total_nodes: total, checks, nearest, further }, query) {
  const why = ({ host, nodename }) => link("/fit", "all amounts", { ...query, why: `${host}/${nodename}` });
  const show = (near) => html`${place(near)}, ${why(near)}:`;
  return section("What excludes the others", html`
    ${checks.length > 0 ? list(checks.map(({ text }) => text)) : quiet(total ? "Nothing: every node fits." : "The fleet has no node.")}
    ${nearest && html`<p>The nearest is ${show(nearest)}</p>${texts(nearest.explanations)}`}
    ${further.length > 0 && html`<p>Then come</p>${list(further.map((near) => html`${show(near)}${texts(near.explanations)}`))}`}`);
}

const amountOfVerdict = (id, title, role) => numeric(id, title, (value, { resource, requested }) =>
  amount(resource, value, role, [requested, "requested"]));

// What the ledger's rule says of a resource.
function verdict(fits, { resource, requested, free, total, max_unit: most }) {
  if (fits) return mark("fits", "good");
  if (free !== null && requested > free) return mark("too little free", "warning");
  return mark(`larger than one claim may be, ${amount(resource, most ?? total, "free", [requested, "requested"])}`, "warning");
}

const VERDICTS = [
  RESOURCE,
  amountOfVerdict("requested", "Requested", "requested"),
  amountOfVerdict("free", "Free", "free"),
  amountOfVerdict("limit", "Limit", "used"),
  column("fits", "Verdict", verdict),
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

function Candidates({ wanted, query, why, asked }) {
  const resources = Object.entries(wanted).map(([name, value]) => `${name}:${value}`).join();
  const isCounted = query.pci !== undefined || Object.values(wanted).some((value) => value > 0);
  return answer(useList("candidates", { limit: LIMIT, resources, count: isCounted || undefined, ...query }, 0), ({ candidates, excluded, why: nodes, total_text: total }) => html`
    ${why && whyNot(why, nodes)}
    ${section(`${plural(candidates.length, "node")}${excluded ? "" : " or more"} would take it`, candidates.length > 0
      && html`${total && html`<p>${sentence(total)}</p>`}<${Table} caption="Candidates, best first" rows=${candidates} columns=${columnsFor(wanted)} />`, "fit")}
    ${excluded && excludedNodes(excluded, asked)}`, "Looking…");
}

const keyOf = ({ resource, alias }) => resource ?? (alias && `alias ${alias}`);

// The GPU models that can be requested, of which the first one is chosen where the address has none.
function useGpus({ gpus, gpu }) {
  const models = usePoll("/v1/gpus", 0).data?.gpus;
  const offered = models?.filter(keyOf) ?? [];
  const chosen = offered.find((model) => keyOf(model) === gpu) ?? offered[0];
  const note = gpus > 0 && models && offered.length === 0 && (models.length > 0
    ? `Claims cannot request a GPU of the fleet: ${join(models.map(({ text }) => text))}.` : "The fleet has no GPU.");
  const choice = offered.length > 0 && html`<label>GPU model
    <select name="gpu" key=${offered.length + gpu}>${offered.map((model) => html`<option value=${keyOf(model)} selected=${model === chosen}>${model.text}</option>`)}</select></label>`;
  return { isKnown: models !== undefined, chosen, note, choice };
}

// Return what is wrong with a request before it is asked.
function faultsOf(query, aliases) {
  const numbers = [...NUMBERS, ["gpus", "GPUs"], ["cells", "NUMA cells"]].filter(([name]) => query[name] && !(Number(query[name]) >= 0));
  const unknown = words(query.pci).map((text) => text.split(":")[0]).filter((alias) => aliases && !aliases.includes(alias));
  return [
    ...numbers.map(([name, title]) => `${title}: ${query[name]} is not a number from 0 on.`),
    ...unknown.map((alias) => `Unknown PCI alias: ${alias}. ${aliases.length > 0 ? `There are ${join(aliases)}.` : "None is configured."}`),
  ];
}

const words = (text = "") => text.split(/[\s,]+/).filter(Boolean);

export function Fit() {
  const { query } = useLocation();
  const about = useAbout();
  const known = { pages: PAGES, pci: about?.pci_aliases };
  const gpus = useGpus(query);
  const faults = faultsOf(query, known.pci);
  const count = (name, title, step = 1) => field(query, name, title, { type: "number", min: 0, step });
  const { resource, alias } = gpus.chosen ?? { resource: GPUS };
  const amounts = [...NUMBERS, ["gpus", "", resource, 1]].map(([name, , resource, factor]) => [resource, Math.ceil(Number(query[name] ?? 0) * factor)]);
  const more = words(query.more).map((text) => text.split(/[:=]/));
  const wanted = [...amounts.filter(([name, value]) => name && value > 0), ...more.map(([name, value = 1]) => [name, value])];
  const filled = {
    numa_cells: query.cells, why: query.why,
    ...Object.fromEntries(TEXTS.map(([name, , parameter]) => [parameter, words(query[name]).join() || undefined])),
  };
  if (alias && query.gpus > 0) filled.pci = join([filled.pci, `${alias}:${Math.ceil(query.gpus)}`], ",");
  const isAsked = wanted.length > 0 || Object.values(filled).some(Boolean);
  const isReady = about && (gpus.isKnown || !query.gpus);
  if (isAsked && faults.length === 0) lastQuery = query;
  return html`<${QueryForm} submit="Find nodes">
      ${NUMBERS.map(([name, title]) => count(name, title, "any"))}
      ${count("gpus", "GPUs")}${gpus.choice}
      ${count("cells", "NUMA cells")}
      ${TEXTS.map(([name, title, , placeholder]) => field(query, name, title, { placeholder, list: known[name] && `known-${name}`, class: known[name] ? "" : "grow" }))}
      ${field(query, "more", "Other resources", { placeholder: "VGPU:1, CUSTOM_…:2", class: "grow" })}
      ${field(query, "why", "Why not on", { placeholder: "host or node" })}
      ${Object.entries(known).map(([name, values = []]) => html`<datalist id=${`known-${name}`}>${values.map((value) => html`<option value=${value} />`)}</datalist>`)}
    <//>
    ${gpus.note && quiet(gpus.note)}
    ${faults.length > 0 && html`<div class="error" role="alert">${list(faults.map(sentence))}</div>`}
    ${isAsked && isReady && faults.length === 0 && html`<${Candidates} wanted=${wanted.length > 0 ? Object.fromEntries(wanted) : { VCPU: 0 }}
      query=${filled} why=${query.why} asked=${query} />`}`;
}
