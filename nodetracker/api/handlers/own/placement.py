"""``/v1/placement``, and the adoption of a provider's uuid by a node."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import answer, parameters
from nodetracker.api.lookup import get_node
from nodetracker.model.errors import DriverFeatureError
from nodetracker.model.serializer import pick
from nodetracker.usecases.reads import find_node

if TYPE_CHECKING:  # imported only where placement is enabled
    from nodetracker.usecases.healing import PlacementHealer

_DRY_RUN = (bool, "true (write nothing) or false")

HEAL_QUERY = parameters("host", host=str, dry_run=_DRY_RUN)

ADOPT_QUERY = parameters(
    force=(bool, "true (adopt a provider of Nova's, too) or false"), dry_run=_DRY_RUN
)

_TEXTS = dict.fromkeys(("host", "nodename", "provider", "what", "expected", "found", "result"), str)

HEALED = answer(differences=[answer(**_TEXTS, is_left=(bool, "it could not be healed"))])

ADOPTED = answer(host=str, nodename=str, before=str, uuid=str)


def heal_placement(call: Call) -> Answer:
    """Make placement agree with the ledger of a host now."""
    host, is_dry = call.query["host"], call.query.get("dry_run", False)
    healer = _find_healer(call)
    with call.backend.agents.turn():
        return Answer({"differences": list(map(asdict, healer.heal(host, is_dry)))})


def adopt_provider(call: Call) -> Answer:
    """Give a node the uuid of the provider that has its name, so that it is reported to."""
    node, healer = get_node(call).node, _find_healer(call)
    record = find_node(call.store, node.host, node.nodename)
    with call.backend.agents.turn():
        uuid = healer.adopt(
            record, call.query.get("force", False), call.query.get("dry_run", False)
        )
    return Answer(pick(record, "host", "nodename", "before=uuid") | {"uuid": uuid})


def _find_healer(call: Call) -> "PlacementHealer":
    """Return what asks placement.

    Raises:
        DriverFeatureError: placement is not enabled.
    """
    if call.backend.placement is None:
        raise DriverFeatureError("placement: not used by the API ([placement] enabled)")
    return call.backend.placement
