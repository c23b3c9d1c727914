// The bar of verbs with their keys, the keys of lists, and the dialog that lists all keys.
import { bdi, button, choose, html, mainOf, plural, readChosen, subjectOf, useAsk, useChoice, useChosen, useEffect, useLayoutEffect, useLocation, useMay, useRef, useState } from "./page.js";
import { isTyping, openPalette } from "./palette.js";
import { run, useAsked, VERBS } from "./verbs.js";

const MOVES = { j: 1, k: -1 };
const ARROWS = { ArrowDown: 1, ArrowUp: -1 };
const OTHERS = [["j k", "next and previous line of a list"], ["Enter", "open what the line is about"], ["x", "choose the line, or not"],
  ["/", "go to a host, node, guest, view …, or do something: take h5 out, h5 events"], ["8 32 h100", "after /: where 8 CPUs, 32 GiB and an h100 fit"], ["?", "this list"], ["Esc", "close it"]];

const rowOf = (element) => element?.closest?.("tbody tr");

// Make another line the current one: the next of its table, or the first that is seen.
function go(by) {
  const row = rowOf(document.activeElement);
  const rows = [...document.querySelectorAll("main tbody tr")];
  const next = row ? rows[Math.max(0, rows.indexOf(row) + by)] : rows.find((each) => each.getBoundingClientRect().bottom > 0);
  if (!next) return;
  mainOf(next).focus({ focusVisible: true });
  next.scrollIntoView({ block: "nearest" });
}

function Help({ onClose, isOn, setOn }) {
  const dialog = useRef(null);
  useLayoutEffect(() => dialog.current.showModal(), []);
  const keys = [...VERBS.filter(({ key }) => key).map(({ key, name }) => [key, name]), ...OTHERS];
  return html`<dialog ref=${dialog} aria-labelledby="keys" onClose=${onClose}>
    <h2 id="keys">Keys</h2>
    <dl class="keys">${keys.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <p class="quiet">The first six are about the hosts that are chosen, or the current line's, or that of the page; without any they ask for one.</p>
    <p><label class="line"><input type="checkbox" checked=${isOn} onChange=${({ target }) => setOn(target.checked ? "on" : "off")} /> Letters are keys</label></p>
    <p class="buttons">${button("Close", () => dialog.current.close(), { class: "primary" })}</p>
  </dialog>`;
}

// Return the host of the line that had the focus last, while it is shown.
function useCurrent() {
  const [row, setRow] = useState(null);
  useEffect(() => {
    const note = ({ target }) => {
      if (rowOf(target) || target.closest("main")) setRow(rowOf(target));
    };
    document.addEventListener("focusin", note);
    return () => document.removeEventListener("focusin", note);
  }, []);
  return row?.isConnected ? row.dataset.host : undefined;
}

// Return the hosts that are chosen, or else the one of a line, or else that of the page.
function hostsOf(chosen, current) {
  if (chosen.size > 0) return [...new Set([...chosen.values()].map(({ host, host_name: name }) => host ?? name))];
  return [current ?? subjectOf().host].filter(Boolean);
}

export function Verbs() {
  const location = useLocation();
  const chosen = useChosen();
  const current = useCurrent();
  const [dialog, , show] = useAsk();
  const [asked, end] = useAsked();
  const [isHelped, setHelped] = useState(false);
  const [letters, setLetters] = useChoice("letters", "on");
  const mayChange = useMay("services:update");
  const hosts = hostsOf(chosen, current);
  const verbs = VERBS.filter(({ key, change }) => key && (mayChange || !change));
  const act = (verb) => { // keys may come faster than what they change is shown
    const now = hostsOf(readChosen(), rowOf(document.activeElement)?.dataset.host ?? current);
    if (now.length > 0) run(verb, now);
    else openPalette(verb);
  };
  useEffect(() => choose([]), [location.path, location.query.kind]);
  useLayoutEffect(() => { // the dialog is open before the next key
    if (!asked) return;
    end();
    const { verb: { change }, hosts: named } = asked;
    show({ ...change, method: "PATCH" }, {}, { each: named.map((name) => ({ name })), onDone: () => choose([]) });
  }, [asked]);
  useEffect(() => {
    const onKeyDown = (event) => {
      const { key, target } = event;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(target) || document.querySelector("dialog[open]")) return;
      const verb = verbs.find((each) => each.key === key);
      const by = MOVES[key] ?? (rowOf(target) && ARROWS[key]);
      if (letters === "off" && key.length === 1 && key !== "?") return;
      if (by) go(by);
      else if (key === "x") rowOf(document.activeElement)?.querySelector("input[type=checkbox]")?.click();
      else if (key === "?") setHelped(true);
      else if (verb) act(verb);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  });
  const of = hosts.length > 1 ? plural(hosts.length, "host") : hosts[0] && bdi(hosts[0]);
  return html`<nav class=${`verbs ${chosen.size > 0 ? "has-chosen" : ""}`} aria-label="Actions">
      <span class="of">${of ?? "Which host?"}</span>
      ${verbs.map((verb) => button(html`${verb.name} <kbd>${verb.key}</kbd>`, () => act(verb), { "aria-label": verb.name, "aria-keyshortcuts": verb.key }))}
      ${button(html`Keys <kbd>?</kbd>`, () => setHelped(true), { class: "all" })}
    </nav>
    ${dialog}${isHelped && html`<${Help} onClose=${() => setHelped(false)} isOn=${letters === "on"} setOn=${setLetters} />`}`;
}
