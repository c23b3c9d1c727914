"""Decide by columns which nodes pass screening: those that the ledger need not refuse.

A search is separated into its shape and the values of its bind parameters: searches of one
shape share one statement, as building it takes SQLAlchemy 2.1 longer than all else that a
process does for a search.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import (
    UNTRACKED,
    WEIGHED,
    best_weight,
    list_amounts,
    node_hash,
    refusing_flags,
    step_height,
)
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import MYSQL_NAMES, has_text, json_number, utc_ago
from nodetracker.db.schema import tables
from nodetracker.db.schema.tables import CANDIDATE_INDEX
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.candidate import CandidateCursor, CandidateOrder
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.settings import CandidatePolicy
from nodetracker.model.units import MIB_PER_GIB, MILLI

Condition = sa.ColumnElement[bool]
Amount = sa.ColumnElement[Any]

_nodes = tables.compute_nodes.c
_services = tables.services.c
_guests = tables.guests.c


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
        tuple(
            (name, AmountShape(bool(wanted.amount), wanted.is_limited, wanted.has_own_limit))
            for name, wanted in list_amounts(request).items()
        ),
        len(set(request.required_traits)),
        len(request.amounts.resources),
    )


def list_values(
    request: ClaimRequest, policy: CandidatePolicy, after: CandidateCursor | None
) -> dict[str, Any]:
    """Return the value of each bind parameter by name.

    The room of a resource class is the usage that the request's own limit allows beside it.
    """
    numbers = node_hash(request.uuid)
    values = {
        "host": request.host,
        "nodename": request.nodename,
        "workload": request.workload.uuid,
        "flags": refusing_flags(request),
        "factor": numbers.factor,
        "offset": numbers.offset,
        **{f"weighed_{name}": float(getattr(request.amounts, name)) for name in WEIGHED},
        **_number("trait", sorted(set(request.required_traits))),
        **_number("class", sorted(request.amounts.resources)),
    }
    for name, wanted in list_amounts(request).items():
        values[f"{name}_amount"] = wanted.amount
        values[f"{name}_room"] = wanted.limit - wanted.amount
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
        **{f"known_least_{name}": float(amount) for name, amount in least.items()},
        **{f"known_width_{name}": float(amount) for name, amount in width.items()},
        "best": best_weight(scale, multipliers),
        "height": step_height(request.amounts, scale, multipliers),
        "after_rank": after.rank,
        "after_first": after.host if is_named else after.hash,
        "after_second": after.nodename if is_named else after.node_id,
    }


def double(value: float) -> Amount:
    """Return a number by which every database computes with doubles."""
    return sa.literal(float(value), sa.Double())


def _reserved(name: str) -> Amount:
    return sa.func.coalesce(json_number(_nodes.reserved, name), double(0))


def _rounded(amount: Amount) -> Amount:
    return sa.func.round(amount, type_=sa.Double())


VCPU_MILLI_USED: Amount = _rounded(_nodes.cpu_used * double(MILLI)) + _reserved("vcpus") * double(
    MILLI
)
DISK_MB_USED: Amount = _rounded(_nodes.disk_used * double(MIB_PER_GIB)) + _reserved("disk_mb")
"""By the reservation and all workloads, like ``memory_mb_used``; both columns lack the former."""

FREE_PCPUS: Amount = _nodes.pcpus - _nodes.pcpus_used
FREE: dict[str, Amount] = {
    "memory_mb": _nodes.memory_mb_free,
    "vcpu_milli": _nodes.vcpu_milli_free,
    "disk_mb": _nodes.disk_mb_free,
}
"""The weighed amounts that are free, as doubles, which are exact up to 2**53."""


def text(name: str) -> "sa.BindParameter[str]":
    """Return a bind parameter of text."""
    return sa.bindparam(name, type_=sa.String())


def whole(name: str) -> "sa.BindParameter[int]":
    """Return a bind parameter of a whole number."""
    return sa.bindparam(name, type_=sa.BigInteger())


def number(name: str) -> "sa.BindParameter[float]":
    """Return a bind parameter by which every database computes with doubles."""
    return sa.bindparam(name, type_=sa.Double())


def keep_wanted(query: sa.Select[Any], shape: RequestShape) -> sa.Select[Any]:
    """Return a query of nodes for those that are the requested ones, and pass by their numbers."""
    named = [_nodes.host == text("host")] if shape.has_host else []
    if shape.has_nodename:
        named.append(_nodes.hypervisor_hostname == text("nodename"))
    amounts = _screen_amounts(shape)
    fits = [sa.or_(sa.and_(*amounts), has_guest(), has_stale_limits())] if amounts else []
    query = query.where(*named, *_screen_facts(shape), *fits)
    return query if shape.has_host or not _is_indexed(shape) else _read_index(query)


def _is_indexed(shape: RequestShape) -> bool:
    """Return whether an index has all columns by which nodes are screened and weighed."""
    amounts = dict(shape.amounts)
    has_own_limits = all(wanted.has_own_limit for wanted in amounts.values())
    return has_own_limits and not (shape.traits or shape.classes)


def _read_index(query: sa.Select[Any]) -> sa.Select[Any]:
    """Let databases read the index in place of the rows.

    The condition is always true. Without it MariaDB 10.11 reads the rows to sort them,
    although it plans to read the index.
    """
    for dialect in MYSQL_NAMES:
        query = query.with_hint(tables.compute_nodes, f"USE INDEX ({CANDIDATE_INDEX})", dialect)
    return query.where(_nodes.admission_flags >= 0)


def is_untracked() -> Condition:
    """Return the condition that a node passes every screen: its driver tracks no resources."""
    return _nodes.admission_flags.bitwise_and(UNTRACKED) != 0


def has_stale_limits() -> Condition:
    """Return the condition that a node passes by its numbers, as these are not of its row."""
    return _nodes.limits_generation != _nodes.generation


def has_guest() -> Condition:
    """Return the condition that a node has the workload's guest, and passes by any amount."""
    guests = sa.select(_guests.compute_node_id).where(_guests.uuid == text("workload"))
    return _nodes.id.in_(guests)


def _screen_facts(shape: RequestShape) -> list[Condition]:
    """Return the conditions that a node has what the request needs."""
    is_known = sa.or_(_nodes.admission_flags.bitwise_and(whole("flags")) == 0, has_stale_limits())
    # Canonical JSON contains a name as it is rendered by itself.
    names = [
        *(_has_text(_nodes.traits, f"trait_{index}") for index in range(shape.traits)),
        *(_has_text(_nodes.inventory, f"class_{index}") for index in range(shape.classes)),
    ]
    return [sa.or_(condition, is_untracked()) for condition in (is_known, *names)]


def _screen_amounts(shape: RequestShape) -> list[Condition]:
    """Return the conditions that the amounts fit a node."""
    amounts = dict(shape.amounts)
    rows = (
        (VCPU, _nodes.vcpu_milli_claimable, VCPU_MILLI_USED),
        (PCPU, _nodes.pcpus_claimable, _nodes.pcpus_used),
        (DISK, _nodes.disk_mb_claimable, DISK_MB_USED),
    )
    fits = [
        _fits(name, amounts[name], claimable, used)
        for name, claimable, used in rows
        if amounts[name].is_limited and amounts[name].has_amount
    ]
    is_instance = shape.kind is WorkloadKind.INSTANCE
    memory = amounts[MEMORY]
    if memory.is_limited and (memory.has_amount or is_instance):
        fits.append(_fits_memory(memory, is_instance))
    return fits


def accepts_claims(service_down_time: int) -> Condition:
    """Return the condition that a service is available, as `accounting.liveness`."""
    # A subquery, so that PostgreSQL reads the time once and not for each row.
    ago = sa.select(utc_ago(service_down_time)).scalar_subquery()
    return sa.and_(
        _services.disabled == sa.false(),
        _services.maintenance == sa.false(),
        _services.forced_down == sa.false(),
        sa.or_(_services.ended_epoch.is_(None), _services.ended_epoch != _services.epoch),
        sa.func.coalesce(_services.last_seen_up, _services.created_at) >= ago,
    )


def _fits(name: str, wanted: AmountShape, claimable: Amount, used: Amount) -> Condition:
    if wanted.has_own_limit:
        return claimable >= number(f"{name}_amount")
    return sa.or_(used <= whole(f"{name}_room"), is_untracked())


def _fits_memory(wanted: AmountShape, is_instance: bool) -> Condition:
    """Return the condition of memory, to which a driver may add an overhead for instances."""
    overhead: Amount = _nodes.overhead_mb if is_instance else sa.literal(0)
    column = _nodes.instance_memory_mb_claimable if is_instance else _nodes.memory_mb_claimable
    fits = _fits(MEMORY, wanted, column, _nodes.memory_mb_used + overhead)
    if wanted.has_amount:
        return fits
    # The columns differ by the overhead, but for nodes that are large enough for it.
    is_free = column == _nodes.memory_mb_claimable if wanted.has_own_limit else overhead == 0
    return sa.or_(is_free, fits)


def _has_text(column: Amount, name: str) -> Condition:
    return has_text(sa.type_coerce(column, sa.Text()), text(name))
