"""List what may be done to a node, with the effect of each action in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.service import ServiceRecord

_UPDATE = "nodetracker:services:update"
_SETTINGS = {  # setting of a host -> title and effect of setting and of unsetting it
    "disabled": (
        ("Disable", "No node of the host accepts new claims. What runs there is not touched."),
        ("Enable", "All nodes of the host accept claims again."),
    ),
    "maintenance": (
        ("Start maintenance", "No node of the host accepts new claims until maintenance ends."),
        ("End maintenance", "All nodes of the host accept claims again, if it is enabled."),
    ),
    "forced_down": (
        (
            "Force down",
            "The host counts as down whatever its heartbeats say. Be sure that it is, before its "
            "workloads start elsewhere.",
        ),
        ("Undo force down", "The heartbeats of the host count again."),
    ),
}


@dataclass(frozen=True, slots=True)
class NodeAction:
    """A request that changes a node or its host.

    Attributes:
        effect: what it does, in sentences.
        rule: of the policy, for the request.
        takes_reason: the body may have ``disabled_reason``.
        is_dangerous: it loses something, or workloads may run twice.
    """

    title: str
    effect: str
    rule: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    takes_reason: bool = False
    is_dangerous: bool = False


def list_actions(uuid: str, state: str, service: ServiceRecord | None) -> list[NodeAction]:
    """Return the actions on a node.

    Args:
        uuid: of the node.
        state: of its host, see `summary.state_of`.
        service: of the host's agent.
    """
    path = f"/v1/nodes/{uuid}"
    found = [] if service is None else [_switch(service, name) for name in _SETTINGS]
    if state == "up":
        effect = "The agent of the host reads the node now and corrects its row."
        rule = "nodetracker:nodes:audit"
        found.append(NodeAction("Audit now", effect, rule, "POST", f"{path}/audit"))
    if state == "down":
        effect = (
            "Its row is deleted with its guests and devices. Active claims prevent that; an agent "
            "that starts again creates the row again."
        )
        rule = "nodetracker:nodes:delete"
        found.append(NodeAction("Delete node", effect, rule, "DELETE", path, is_dangerous=True))
    return found


def _switch(service: ServiceRecord, name: str) -> NodeAction:
    """Return the action that changes a setting of the host."""
    is_set = bool(getattr(service, name))
    title, effect = _SETTINGS[name][is_set]
    return NodeAction(
        title,
        effect,
        _UPDATE,
        "PATCH",
        f"/v1/services/{service.uuid}",
        {name: not is_set},
        takes_reason=name == "disabled" and not is_set,
        is_dangerous=name == "forced_down" and not is_set,
    )
