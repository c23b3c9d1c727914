"""Separate a search into its shape and the values of its bind parameters.

Searches of one shape share one statement, as building it takes SQLAlchemy 2.1
longer than all else that a process does for a search.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.accounting.ledger.screening import AmountScreen, list_amounts, refusing_flags
from nodetracker.accounting.weights import WEIGHED, best_weight, node_hash, step_height
from nodetracker.db.codec import render_json
from nodetracker.model.candidate import CandidateCursor, CandidateOrder
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.settings import CandidatePolicy


@dataclass(frozen=True, slots=True)
class AmountShape:
    """How an amount is compared; see `AmountScreen`."""

    has_amount: bool
    is_limited: bool
    has_own_limit: bool


@dataclass(frozen=True, slots=True)
class RequestShape:
    """The part of a request that decides which conditions nodes must fulfil.

    Attributes:
        amounts: (resource class, shape) of what is screened for.
        traits, classes: number of required traits, and of further resource classes.
    """

    kind: WorkloadKind
    has_host: bool
    has_nodename: bool
    amounts: tuple[tuple[str, AmountShape], ...]
    traits: int
    classes: int


def shape_of(request: ClaimRequest) -> RequestShape:
    """Return the shape of a request."""
    return RequestShape(
        request.workload.kind,
        request.host is not None,
        request.nodename is not None,
        tuple((name, _shape_of_amount(wanted)) for name, wanted in list_amounts(request).items()),
        len(set(request.required_traits)),
        len(request.amounts.resources),
    )


def _shape_of_amount(wanted: AmountScreen) -> AmountShape:
    return AmountShape(bool(wanted.amount), wanted.is_limited, wanted.has_own_limit)


def list_values(
    request: ClaimRequest, policy: CandidatePolicy, after: CandidateCursor | None
) -> dict[str, Any]:
    """Return the value of each bind parameter by name."""
    numbers = node_hash(request.uuid)
    values = {
        "host": request.host,
        "nodename": request.nodename,
        "workload": request.workload.uuid,
        "flags": refusing_flags(request),
        "factor": numbers.factor,
        "offset": numbers.offset,
        **{weighed_name(name): float(getattr(request.amounts, name)) for name in WEIGHED},
        **_number("trait", sorted(set(request.required_traits))),
        **_number("class", sorted(request.amounts.resources)),
    }
    for name, wanted in list_amounts(request).items():
        values[amount_name(name)] = wanted.amount
        values[room_name(name)] = wanted.limit - wanted.amount
    return values if after is None else values | _list_position(request, policy, after)


def _number(prefix: str, names: list[str]) -> Mapping[str, str]:
    return {f"{prefix}_{number}": render_json(name) for number, name in enumerate(names)}


def _list_position(
    request: ClaimRequest, policy: CandidatePolicy, after: CandidateCursor
) -> dict[str, Any]:
    scale, multipliers = after.scale, policy.multipliers
    least = {name: getattr(scale.least, name) for name in WEIGHED}
    width = {name: max(getattr(scale.most, name) - least[name], 1) for name in WEIGHED}
    is_named = policy.order is CandidateOrder.NAMED
    return {
        **{least_name(name): float(amount) for name, amount in least.items()},
        **{width_name(name): float(amount) for name, amount in width.items()},
        "best": best_weight(scale, multipliers),
        "height": step_height(request.amounts, scale, multipliers),
        "after_rank": after.rank,
        "after_first": after.host if is_named else after.hash,
        "after_second": after.nodename if is_named else after.node_id,
    }


def amount_name(resource: str) -> str:
    """Return the parameter of the amount of a resource class."""
    return f"{resource}_amount"


def room_name(resource: str) -> str:
    """Return the parameter of the usage that the request's own limit allows beside it."""
    return f"{resource}_room"


def weighed_name(name: str) -> str:
    """Return the parameter of a `WEIGHED` amount as a double."""
    return f"weighed_{name}"


def least_name(name: str) -> str:
    """Return the parameter of the least free amount, known from the page before."""
    return f"known_least_{name}"


def width_name(name: str) -> str:
    """Return the parameter of the range of free amounts, known from the page before."""
    return f"known_width_{name}"
