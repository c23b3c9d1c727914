// Buttons of actions, each with a dialog that asks once.
import { refreshAll, request } from "./api.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { announce, bdi, button, field, join, list, plural, quiet, RequestForm, sentence } from "./widgets.js";

// The dialog of an action on places {"Host": name}, or on many hosts with a request each: [{name, path}].
function Ask({ action, place, each, onDone, onClose }) {
  const { title, text, effect, method, path, body, takes_reason: takesReason, is_dangerous: isDangerous } = action;
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const send = async (form) => {
    const reason = form.get("reason")?.trim();
    const wanted = { method, body: reason ? { ...body, [takesReason === true ? `${Object.keys(body)[0]}_reason` : takesReason]: reason } : body };
    let answer = {};
    for (const { name, path: address } of each ?? [{ path }]) {
      answer = await request(address, wanted);
      if (answer.error) return { error: { ...answer.error, title: join([name, answer.error.title], ": ") } };
    }
    return answer;
  };
  const close = () => dialog.current.close();
  const finish = () => {
    announce(`${title}: done`);
    close();
    onDone?.(action);
  };
  const settle = (answer) => (refreshAll(), answer); // some of many may be done
  return html`<dialog ref=${dialog} aria-labelledby="ask" onClose=${onClose}>
    <${RequestForm} submit=${text ?? title} isDangerous=${isDangerous} send=${(form) => send(form).then(settle)} onDone=${finish} onCancel=${close}>
      <h2 id="ask">${sentence(title)}</h2>
      <p>${Object.entries(place).map(([kind, name], index) => html`${index > 0 && ", "}${kind} <strong><bdi>${name}</bdi></strong>`)}</p>
      ${each && html`<p>${plural(each.length, "host")}</p>${list(each.map(({ name }) => bdi(name)), "plain many")}`}
      <p>${effect}</p>
      ${takesReason && field({}, "reason", "Reason", { maxlength: 255, required: takesReason !== true, autocomplete: "off" })}
    <//>
  </dialog>`;
}

// Return [dialog, open, show]: open(action, place, {text, each, onDone}) is a button that calls show.
export function useAsk() {
  const [asked, setAsked] = useState(null);
  const show = (action, place = {}, { text = action.title, ...more } = {}) => setAsked({ action: { ...action, text }, place, ...more });
  const open = (action, place, more) =>
    button(more?.text ?? action.title, () => show(action, place, more), { key: action.title, "aria-label": action.title });
  return [asked && html`<${Ask} ...${asked} onClose=${() => setAsked(null)} />`, open, show];
}
