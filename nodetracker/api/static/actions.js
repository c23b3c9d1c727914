// Buttons of actions, each with a dialog that asks once; one about hosts says how they are, and asks again if that has changed meanwhile.
import { refreshAll, request, useMay } from "./api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { announce, bdi, button, decisions, field, join, list, plural, RequestForm, sentence, states } from "./widgets.js";

const AGENT = "nodetracker-compute";
const CHANGED = 412; // the status of a refusal, because somebody else was faster

// Read the services of hosts. Return [{name, path, service, error}].
const readHosts = (hosts) => Promise.all(hosts.map(async ({ name, path }) => {
  const { data, error } = await request(path ?? `/v1/services?${new URLSearchParams({ host: name, binary: AGENT })}`);
  const service = path ? data : data?.services[0];
  return { name, service, path: path ?? `/v1/services/${service?.id}`, error: error ?? (service ? null : { title: "No such host", detail: "", reasons: [] }) };
}));

const howIsIt = ({ name, service }) => html`<li><bdi>${name}</bdi> ${service && html`${states(service)} ${decisions(service).map(([title, text]) => text
  && html`<span class="quiet">${title} ${text}</span> `)}`}</li>`;

// Where all guests of some hosts would fit elsewhere, asked once.
function Plan({ hosts }) {
  const [{ data, error }, setAnswer] = useState({});
  useEffect(() => {
    request("/v1/plans", { method: "POST", body: { hosts } }).then(setAnswer);
  }, []);
  const say = (text, left = []) => html`<div role="status"><p>${text}</p>${list(left.map((guest) => html`<bdi>${guest.workload_name}</bdi> <span class="quiet">${guest.reason}</span>`), "plain many")}</div>`;
  if (error) return say(`Whether its guests fit elsewhere is not known: ${join([error.title, error.detail], ": ")}`);
  if (!data) return say("Looking where its guests would fit…");
  return say(data.text, data.guests.filter(({ to_host: host }) => host === null));
}

// The dialog of an action on places {"Host": name}, or on many things with a request each: [{name, path}], of which hosts need no path.
function Ask({ action, place, each, onDone, onClose }) {
  const { title, text, effect, method, path, body, takes_reason: takesReason, is_dangerous: isDangerous } = action;
  const dialog = useRef(null);
  const done = useRef(new Set()); // names, of many
  const isOfHosts = method === "PATCH";
  const isPlanned = useMay("plans:create") && isOfHosts && body.maintenance;
  const [things, setThings] = useState(each ?? [{ name: place.Host, path }]);
  const reading = useRef(null);
  const read = () => {
    reading.current = readHosts(things).then((found) => (setThings(found), found));
    return reading.current;
  };
  useLayoutEffect(() => dialog.current.showModal(), []); // before the next key
  useEffect(() => {
    if (isOfHosts) read();
  }, []);
  const send = async (form) => {
    const reason = form.get("reason")?.trim();
    const names = takesReason === true ? Object.keys(body).map((setting) => `${setting}_reason`) : [takesReason];
    const wanted = reason ? { ...body, ...Object.fromEntries(names.map((each) => [each, reason])) } : body;
    let answer = {};
    for (const { name, path: address, service, error } of await reading.current ?? things) {
      if (done.current.has(name)) continue;
      const version = service?.admin_version;
      answer = error ? { error } : await request(address, { method, body: version ? { ...wanted, if_admin_version: version } : wanted });
      if (answer.error?.status === CHANGED) {
        await read();
        return { error: { title: `${name} was changed meanwhile`, detail: "See how it is now, and confirm again", reasons: [] } };
      }
      if (answer.error) return { error: { ...answer.error, title: join([each && name, answer.error.title], ": ") } };
      done.current.add(name);
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
      ${each ? each.length > 1 && html`<p>${plural(each.length, isOfHosts ? "host" : "workload")}</p>`
        : html`<p>${Object.entries(place).map(([kind, name], index) => html`${index > 0 && ", "}${kind} <strong><bdi>${name}</bdi></strong>`)}</p>`}
      ${(each || isOfHosts) && html`<ul class="plain many">${things.map(howIsIt)}</ul>`}
      <p>${effect}</p>
      ${isPlanned && html`<${Plan} hosts=${things.map(({ name }) => name)} />`}
      ${takesReason && field({}, "reason", "Reason", { maxlength: 255, required: takesReason !== true, autocomplete: "off" })}
    <//>
  </dialog>`;
}

// Return [dialog, open, show]: open(action, place, {text, each, onDone}) is a button that calls show. It is the same
// one for what undoes the action, and keeps the focus.
export function useAsk() {
  const [asked, setAsked] = useState(null);
  const show = (action, place = {}, { text = action.title, ...more } = {}) => setAsked({ action: { ...action, text }, place, ...more });
  const open = (action, place, more) => button(more?.text ?? action.title, () => show(action, place, more), { "aria-label": action.title });
  return [asked && html`<${Ask} ...${asked} onClose=${() => setAsked(null)} />`, open, show];
}
