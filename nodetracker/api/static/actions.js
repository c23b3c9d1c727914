// What may be done to a node: each is asked for once, with its effect.
import { isAllowed, refreshAll, request } from "./api.js";
import { html, useEffect, useRef } from "./preact.js";
import { navigate } from "./router.js";
import { announce, RequestForm } from "./widgets.js";

// The settings of a host: titles and effects of setting and of unsetting each.
const SETTINGS = {
  disabled: [
    ["Disable", "No node of the host accepts new claims. What runs there is not touched."],
    ["Enable", "All nodes of the host accept claims again."],
  ],
  maintenance: [
    ["Start maintenance", "No node of the host accepts new claims until maintenance ends."],
    ["End maintenance", "All nodes of the host accept claims again, if it is enabled."],
  ],
  forced_down: [
    ["Force down", "The host counts as down whatever its heartbeats say. Be sure that it is, before its workloads start elsewhere."],
    ["Undo force down", "The heartbeats of the host count again."],
  ],
};

// Return the actions on a node that the user may take: {title, effect, method, path, …} each.
export function listActions(about, node, service) {
  const path = `/v1/nodes/${node.uuid}`;
  const current = { ...service, disabled: node.status === "disabled", maintenance: node.maintenance };
  const isSettable = service && isAllowed(about, "nodetracker:services:update");
  return [
    ...Object.entries(isSettable ? SETTINGS : {}).map(([name, effects]) => {
      const [title, effect] = effects[Number(current[name])];
      return { title, effect, method: "PATCH", path: `/v1/services/${service.id}`, body: { [name]: !current[name] },
        hasReason: title === "Disable", isDangerous: title === "Force down" };
    }),
    node.state === "up" && isAllowed(about, "nodetracker:nodes:audit") && {
      title: "Audit now", method: "POST", path: `${path}/audit`,
      effect: "The agent of the host reads the node now and corrects its row.",
    },
    node.state === "down" && isAllowed(about, "nodetracker:nodes:delete") && {
      title: "Delete node", method: "DELETE", path, isDangerous: true, leadsTo: "/",
      effect: "Its row is deleted with its guests and devices. Active claims prevent that; an agent that starts again creates the row again.",
    },
  ].filter(Boolean);
}

// Return the action that aborts a claim, false if the user may not.
export const abortOf = (about, { uuid, state }, name) => state !== "released" && isAllowed(about, "nodetracker:claims:abort") && {
  title: "Abort claim", method: "DELETE", path: `/v1/claims/${uuid}`, isDangerous: true,
  effect: `The claim of ${name} is released. A guest that runs still counts, without a claim.`,
};

export function Ask({ action, node, onClose }) {
  const { title, effect, method, path, body, hasReason, isDangerous, leadsTo } = action;
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const send = async (form) => {
    const reason = form.get("reason")?.trim();
    const answer = await request(path, { method, body: reason ? { ...body, disabled_reason: reason } : body });
    refreshAll();
    return answer;
  };
  const close = () => {
    dialog.current.close();
    onClose();
  };
  const finish = () => {
    announce(`${title}: done`);
    close();
    if (leadsTo) navigate(leadsTo);
  };
  return html`<dialog ref=${dialog} aria-labelledby="ask" onCancel=${close}>
    <${RequestForm} submit=${title} isDangerous=${isDangerous} send=${send} onDone=${finish} onCancel=${close}>
      <h2 id="ask">${title}</h2>
      <p>Host <strong><bdi>${node.host}</bdi></strong>, node <strong><bdi>${node.hypervisor_hostname}</bdi></strong></p>
      <p>${effect}</p>
      ${hasReason && html`<label>Reason <input name="reason" maxlength="255" autocomplete="off" /></label>`}
    <//>
  </dialog>`;
}
