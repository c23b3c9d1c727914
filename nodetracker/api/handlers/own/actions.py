"""``/v1/nodes/{uuid}/actions`` and ``/v1/hosts/{host}/actions``: what the caller may do to them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import answer, answer_of, choice
from nodetracker.api.lookup import get_liveness, get_node_page
from nodetracker.model.service import ServiceRecord, takes_calls
from nodetracker.usecases.reads import require_agent
from nodetracker.views.services import state_of


@dataclass(frozen=True, slots=True)
class Action:
    """A request that changes a node or its host.

    Attributes:
        target: ``host``, with all of its nodes, or ``node``.
        effect: what it does, in sentences.
        rule: of the policy, for the request.
        takes_reason: the body may have a reason of each setting, as ``disabled_reason``.
        is_dangerous: it loses something, or workloads may run twice.
    """

    title: str
    target: str
    effect: str
    rule: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    takes_reason: bool = False
    is_dangerous: bool = False


ACTIONS = answer(
    actions=[
        answer_of(
            Action,
            target=choice(("host", "node")),
            method=choice(("PATCH", "POST", "DELETE")),
            takes_reason=(
                bool,
                "the body may have a reason of each setting: its name and _reason",
            ),
        )
    ]
)

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
    "spare": (
        (
            "Keep spare",
            "Claims that name no host leave it out, unless they are evacuations. What runs there "
            "is not touched.",
        ),
        ("End spare", "Claims that name no host are placed here again."),
    ),
}
_OUT_OF_SERVICE = (  # whether it is out of service -> title and effect of changing that
    (
        "Take out",
        "It is disabled and in maintenance, with a reason: no node of the host accepts new "
        "claims. What runs there is not touched.",
    ),
    (
        "Put back in",
        "It is enabled, and maintenance ends: all nodes of the host accept claims again.",
    ),
)


def list_node_actions(call: Call) -> Answer:
    """List what the caller may do to a node and its host, with its effect."""
    page = get_node_page(call, reads_audits=True)
    (found,) = page.items
    state, path = (
        state_of(found.service, get_liveness(call, page.now)),
        f"/v1/nodes/{found.node.uuid}",
    )
    actions = [] if found.service is None else [_switch(found.service, name) for name in _SETTINGS]
    if state == "up" and found.service and takes_calls(found.service):
        effect = "The agent of the host reads the node now and corrects its row."
        rule = "nodetracker:nodes:audit"
        actions.append(Action("Audit now", "node", effect, rule, "POST", f"{path}/audit"))
    if state == "down":
        effect = (
            "Its row is deleted with its guests and devices. Active claims prevent that; an agent "
            "that starts again creates the row again."
        )
        rule = "nodetracker:nodes:delete"
        actions.append(
            Action("Delete node", "node", effect, rule, "DELETE", path, is_dangerous=True)
        )
    return _answer(call, actions)


def list_host_actions(call: Call) -> Answer:
    """List what the caller may do to a host, with its effect on all of its nodes."""
    service = require_agent(call.store, call.params["host"])
    is_out = service.disabled and service.maintenance
    title, effect = _OUT_OF_SERVICE[is_out]
    body = {"disabled": not is_out, "maintenance": not is_out}
    leading = _change(service, title, effect, body, takes_reason=not is_out)
    return _answer(call, [leading, *(_switch(service, name) for name in _SETTINGS)])


def _answer(call: Call, actions: Iterable[Action]) -> Answer:
    return Answer({"actions": [asdict(item) for item in actions if call.is_allowed(item.rule, {})]})


def _switch(service: ServiceRecord, name: str) -> Action:
    """Return the action that changes a setting of the host."""
    is_set = bool(getattr(service, name))
    title, effect = _SETTINGS[name][is_set]
    return _change(
        service,
        title,
        effect,
        {name: not is_set},
        takes_reason=name != "spare" and not is_set,
        is_dangerous=name == "forced_down" and not is_set,
    )


def _change(
    service: ServiceRecord, title: str, effect: str, body: Mapping[str, Any], **more: bool
) -> Action:
    """Return the action that changes what administrators decide about a host."""
    rule, path = "nodetracker:services:update", f"/v1/services/{service.uuid}"
    return Action(title, "host", effect, rule, "PATCH", path, body, **more)
