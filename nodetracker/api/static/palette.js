// The palette that Ctrl-K and "/" open: finds views and objects, does what is said of a host, and looks for room.
import { lastRequest } from "./fit.js";
import { announce, hrefOf, html, join, request, useAbout, useEffect, useLayoutEffect, useMay, useRef, useState, useUpdates } from "./page.js";
import { parseVerb, run, VERBS } from "./verbs.js";

const WAIT_MS = 150; // after the last key
const PLACES = { // kind -> where it is shown
  host: ({ name: host }) => hrefOf("/host", { host }),
  node: ({ uuid }) => hrefOf(`/nodes/${uuid}`),
  project: ({ name }) => hrefOf("/workloads", { project: name }),
  workload: ({ uuid }) => hrefOf("/workloads", { text: uuid }),
  claim: ({ uuid }) => hrefOf("/workloads", { text: uuid }),
};
const ROOM = /^(?:fit )?(\d+(?:\.\d+)?)(?: (\d+(?:\.\d+)?))?(?: ([^\d\s]\S*))?(?: (?:on )?(\S+))?$/i; // CPUs, GiB, device, host

export const isTyping = ({ tagName, type, isContentEditable }) => isContentEditable || ["SELECT", "TEXTAREA"].includes(tagName) || (tagName === "INPUT" && type !== "checkbox");

// Return where "8 32 h100" leads: a name of [pci] alias is a device, another word is a host.
function roomOf(text, aliases = []) {
  const [, cpus, memory, word, last] = text.trim().match(ROOM) ?? [];
  if (!cpus) return [];
  const pci = aliases.find((alias) => alias.toLowerCase() === word?.toLowerCase());
  const why = pci ? last : word;
  const wanted = [`${cpus} CPUs`, memory && `${memory} GiB`, pci].filter(Boolean).join(", ");
  return [{ kind: why ? "why not" : "room for", name: why ? `${wanted} on ${why}` : wanted, href: hrefOf("/fit", { cpus, memory, pci, why }) }];
}

function itemsOf(text, views, found, verbs, wanted) {
  const places = found.filter(({ kind }) => kind === "host");
  const verbOf = (verb, { name }) => ({ kind: "action", verb, name });
  if (wanted) return places.map((host) => verbOf(wanted, host));
  const matching = views.filter(([, title]) => text.trim() && title.toLowerCase().includes(text.trim().toLowerCase()));
  const [first, ...things] = found.map((item) => ({ ...item, href: PLACES[item.kind](item) }));
  const actions = first?.kind === "host" ? verbs.map((verb) => verbOf(verb, first)) : [];
  const shown = text.trim() ? matching : views;
  return [first, ...actions, ...things, ...shown.map(([path, name]) => ({ kind: "view", name, href: hrefOf(path, path === "/fit" ? lastRequest() ?? {} : {}) }))].filter(Boolean);
}

// For a verb that was chosen before, only hosts are found.
function Chooser({ views, given, onClose }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState({ of: "", things: [] });
  const [chosen, setChosen] = useState(0);
  const dialog = useRef(null);
  const isEntered = useRef(false); // before the answer
  const mayChange = useMay("services:update");
  const aliases = useAbout()?.pci_aliases;
  const verbs = VERBS.filter(({ change }) => mayChange || !change);
  const [said, name] = given ? [given, text.trim()] : parseVerb(text);
  const wanted = verbs.includes(said) ? said : undefined;
  const rooms = given ? [] : roomOf(text, aliases);
  const items = [...rooms, ...itemsOf(text, given ? [] : views, found.things, verbs, wanted)];
  useLayoutEffect(() => dialog.current.showModal(), []); // before the next key
  useEffect(() => {
    if (!name) return setFound({ of: "", things: [] });
    let isLast = true;
    const timer = setTimeout(async () => {
      const { data, error } = await request(`/v1/search?${new URLSearchParams({ text: name })}`);
      if (!isLast) return;
      setFound({ of: name, things: data?.found ?? [], error });
      setChosen(0);
    }, WAIT_MS);
    return () => {
      isLast = false;
      clearTimeout(timer);
    };
  }, [name]);
  const isAnswered = name && found.of === name;
  const problem = isAnswered && found.error && `The search failed: ${join([found.error.title, found.error.detail], ": ")}`;
  useEffect(() => announce(problem || (items.length > 0 ? `${items.length} found` : isAnswered ? "Nothing is found." : "")), [problem, items.length, isAnswered, name]);
  useEffect(() => {
    if (isEntered.current && found.of === name && items[0]) open(items[0]);
  }, [found]);
  useEffect(() => document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  const open = ({ href, verb, name: host }) => {
    dialog.current.close();
    if (verb) run(verb, [host]);
    else location.hash = href;
  };
  const change = ({ target }) => {
    isEntered.current = false;
    setText(target.value);
    setChosen(0);
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setChosen((chosen + step + items.length) % Math.max(1, items.length));
    else if (event.key === "Enter" && name && found.of !== name && rooms.length === 0) isEntered.current = true;
    else if (event.key === "Enter" && items[chosen]) open(items[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<dialog ref=${dialog} class="palette" aria-label=${given ? given.name : "Go to"} onClose=${onClose}>
    <input role="combobox" aria-label=${given ? `${given.name}: which host?` : "Find a host, node, workload, project, claim or action"} aria-expanded="true" aria-controls="found"
      aria-activedescendant=${items[chosen] && `found-${chosen}`} autocomplete="off" placeholder=${given ? `${given.name}: which host?` : "h5, take h5 out, h5 events, a guest, a UUID, or room: 8 32 gpu"}
      value=${text} onInput=${change} onKeyDown=${onKeyDown} />
    <ul id="found" role="listbox" aria-label="Found">${items.map((item, index) => html`<li id=${`found-${index}`} role="option"
      aria-selected=${index === chosen} onClick=${() => open(item)}>
      <span class="quiet">${item.verb?.name ?? item.kind}</span> <bdi>${item.name}</bdi>${["node", "workload"].includes(item.kind) && html` <span class="quiet">on <bdi>${item.host}</bdi></span>`}</li>`)}</ul>
    ${problem && html`<p class="error">${problem}</p>`}
  </dialog>`;
}

let given; // the verb that the palette was opened for
let last = 0; // which palette is open; one that closes stays until its event
const listeners = new Set();

function show(number, verb) {
  [last, given] = [number, verb];
  for (const update of listeners) update();
}

let opened = 0;

// Open the palette, of a verb to choose its host.
export const openPalette = (verb) => show(opened += 1, verb);

export function Palette({ views }) {
  useUpdates(listeners);
  useEffect(() => {
    const onKeyDown = (event) => {
      const isKey = event.key === "k" ? event.ctrlKey || event.metaKey : event.key === "/" && !isTyping(event.target);
      if (!isKey || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      openPalette();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  const mine = last;
  return html`<button type="button" class="go" aria-keyshortcuts="Control+K" onClick=${() => openPalette()}>Go to… <kbd>/</kbd></button>
    ${last > 0 && html`<${Chooser} key=${last} views=${views} given=${given} onClose=${() => last === mine && show(0)} />`}`;
}
