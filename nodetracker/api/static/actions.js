// What may be done to a node: each is asked for once, with its effect.
import { isAllowed } from "./about.js";
import { request } from "./api.js";
import { Dialog } from "./dialog.js";
import { refreshAll } from "./poll.js";
import { html } from "./preact.js";
import { navigate } from "./router.js";

const switchOf = (service, change, title, effect, more = {}) => ({
  title, effect, method: "PATCH", path: `/v1/services/${service.id}`, body: change, ...more,
});

// Return the actions on a node that the user may take: {title, effect, method, path, …} each.
export function listActions(about, node, service) {
  const found = [];
  const path = `/v1/nodes/${node.uuid}`;
  if (service && isAllowed(about, "nodetracker:services:update")) {
    found.push(
      node.status === "disabled"
        ? switchOf(service, { disabled: false }, "Enable", "All nodes of the host accept claims again.")
        : switchOf(service, { disabled: true }, "Disable",
            "No node of the host accepts new claims. What runs there is not touched.", { hasReason: true }),
      node.maintenance
        ? switchOf(service, { maintenance: false }, "End maintenance", "All nodes of the host accept claims again, if it is enabled.")
        : switchOf(service, { maintenance: true }, "Start maintenance",
            "No node of the host accepts new claims until maintenance ends."),
      service.forced_down
        ? switchOf(service, { forced_down: false }, "Undo force down", "The heartbeats of the host count again.")
        : switchOf(service, { forced_down: true }, "Force down",
            "The host counts as down whatever its heartbeats say. Be sure that it is, before its workloads start elsewhere.",
            { isDangerous: true }),
    );
  }
  if (isAllowed(about, "nodetracker:nodes:audit") && node.state === "up") {
    const effect = "The agent of the host reads the node now and corrects its row.";
    found.push({ title: "Audit now", effect, method: "POST", path: `${path}/audit` });
  }
  if (isAllowed(about, "nodetracker:nodes:delete") && node.state === "down") {
    found.push({
      title: "Delete node", method: "DELETE", path, isDangerous: true, leadsTo: "/",
      effect: "Its row is deleted with its guests and devices. Active claims prevent that; an agent that starts again creates the row again.",
    });
  }
  return found;
}

// Return the action that aborts a claim, null if the user may not.
export function abortOf(about, claim, name) {
  if (claim.state === "released" || !isAllowed(about, "nodetracker:claims:abort")) return null;
  return {
    title: "Abort claim", method: "DELETE", path: `/v1/claims/${claim.uuid}`, isDangerous: true,
    effect: `The claim of ${name} is released. A guest that runs still counts, without a claim.`,
  };
}

// Render the dialog of an action.
export function Ask({ action, node, onClose }) {
  const { title, effect, method, path, body, hasReason, isDangerous, leadsTo } = action;
  const confirm = async (form) => {
    const reason = form.get("reason")?.trim();
    const answer = await request(path, { method, body: reason ? { ...body, disabled_reason: reason } : body });
    refreshAll();
    return answer;
  };
  const close = (isDone) => {
    onClose();
    if (isDone && leadsTo) navigate(leadsTo);
  };
  return html`<${Dialog} title=${title} action=${title} isDangerous=${isDangerous} onConfirm=${confirm} onClose=${close}>
    <p>Host <strong><bdi>${node.host}</bdi></strong>, node <strong><bdi>${node.hypervisor_hostname}</bdi></strong></p>
    <p>${effect}</p>
    ${hasReason && html`<label>Reason <input name="reason" maxlength="255" autocomplete="off" /></label>`}
  <//>`;
}
