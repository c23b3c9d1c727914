// The palette that Ctrl-K and "/" open: finds views, objects and actions.
import { announce, hrefOf, html, request, useEffect, useLayoutEffect, useMay, useRef, useState } from "./page.js";

const WAIT_MS = 150; // after the last key
const PLACES = { // kind -> where it is shown
  host: ({ name: host }) => hrefOf("/host", { host }),
  node: ({ uuid }) => hrefOf(`/nodes/${uuid}`),
  project: ({ name }) => hrefOf("/search", { text: name }),
  workload: ({ uuid }) => hrefOf("/search", { text: uuid }),
  claim: ({ uuid }) => hrefOf("/search", { text: uuid }),
};
const ACTIONS = [["disable or enable", "able"], ["start or end maintenance of", "maintenance"]];

const isTyping = ({ tagName, isContentEditable }) => isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(tagName);

// What may be done to a host that is found.
const actionsOf = ({ name, uuid }, mayChange) => [
  { kind: "action", verb: "why not on", name, href: hrefOf("/fit", { why: name, cpus: 1 }) },
  { kind: "action", verb: "what happened on", name, href: hrefOf("/events", { host: name }) },
  ...(uuid && mayChange ? ACTIONS.map(([verb, ask]) => ({ kind: "action", verb, name, href: hrefOf(`/nodes/${uuid}`, { ask }) })) : []),
];

function itemsOf(text, views, found, mayChange) {
  const matching = views.filter(([, title]) => title.toLowerCase().includes(text.toLowerCase()));
  const things = found.map((item) => ({ ...item, href: PLACES[item.kind](item) }));
  const actions = found.filter(({ kind }) => kind === "host").slice(0, 1).flatMap((host) => actionsOf(host, mayChange));
  return [...things, ...actions, ...matching.map(([path, name]) => ({ kind: "view", name, href: hrefOf(path) }))];
}

function Chooser({ views, onClose }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [chosen, setChosen] = useState(0);
  const dialog = useRef(null);
  const mayChange = useMay("services:update");
  const items = itemsOf(text, views, found, mayChange);
  useLayoutEffect(() => dialog.current.showModal(), []); // before the next key
  useEffect(() => {
    if (!text.trim()) return setFound([]);
    let isLast = true;
    const timer = setTimeout(async () => {
      const { data } = await request(`/v1/search?${new URLSearchParams({ text })}`);
      if (!isLast) return;
      setFound(data?.found ?? []);
      setChosen(0);
    }, WAIT_MS);
    return () => {
      isLast = false;
      clearTimeout(timer);
    };
  }, [text]);
  useEffect(() => announce(items[chosen] ? "" : "Nothing is found."), [items.length > 0]);
  useEffect(() => document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  const open = ({ href }) => {
    dialog.current.close();
    location.hash = href;
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setChosen((chosen + step + items.length) % Math.max(1, items.length));
    else if (event.key === "Enter" && items[chosen]) open(items[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Go to" onClose=${onClose}>
    <input role="combobox" aria-label="Find a host, node, workload, project, claim or action" aria-expanded="true" aria-controls="found"
      aria-activedescendant=${items[chosen] && `found-${chosen}`} autocomplete="off" placeholder="Host, node, guest, UUID, project or action"
      value=${text} onInput=${({ target }) => setText(target.value)} onKeyDown=${onKeyDown} />
    <ul id="found" role="listbox" aria-label="Found">${items.map((item, index) => html`<li id=${`found-${index}`} role="option"
      aria-selected=${index === chosen} onClick=${() => open(item)}>
      <span class="quiet">${item.verb ?? item.kind}</span> <bdi>${item.name}</bdi>${["node", "workload"].includes(item.kind) && html` <span class="quiet">on <bdi>${item.host}</bdi></span>`}</li>`)}</ul>
  </dialog>`;
}

export function Palette({ views }) {
  const [last, setLast] = useState(0); // one that closes stays until its event
  const open = () => setLast((now) => now + 1);
  useEffect(() => {
    const onKeyDown = (event) => {
      const isKey = event.key === "k" ? event.ctrlKey || event.metaKey : event.key === "/" && !isTyping(event.target);
      if (!isKey || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      open();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  return html`<button type="button" class="go" aria-keyshortcuts="Control+K" onClick=${open}>Go to… <kbd>/</kbd></button>
    ${last > 0 && html`<${Chooser} key=${last} views=${views} onClose=${() => setLast((now) => now === last ? 0 : now)} />`}`;
}
