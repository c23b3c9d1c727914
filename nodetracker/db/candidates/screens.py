"""Express by columns which nodes pass screening, as `accounting.ledger.screening` decides it."""

from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.screening import UNTRACKED
from nodetracker.db.candidates.parameters import (
    AmountShape,
    RequestShape,
    amount_name,
    room_name,
)
from nodetracker.db.connection.dialect import has_text, utc_ago
from nodetracker.db.schema import tables
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.guest import WorkloadKind
from nodetracker.units import MIB_PER_GIB, MILLI

Condition = sa.ColumnElement[bool]
Amount = sa.ColumnElement[Any]

_nodes = tables.compute_nodes.c
_services = tables.services.c
_guests = tables.guests.c


def double(value: float) -> Amount:
    """Return a number by which every database computes with doubles."""
    return sa.literal(float(value), sa.Double())


VCPU_MILLI_USED: Amount = sa.func.round(_nodes.cpu_used * double(MILLI), type_=sa.Double())
DISK_MB_USED: Amount = sa.func.round(_nodes.disk_used * double(MIB_PER_GIB), type_=sa.Double())
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


def is_wanted(shape: RequestShape) -> Condition:
    """Return the condition that a node is the requested one, and passes by its numbers."""
    named = [_nodes.host == text("host")] if shape.has_host else []
    if shape.has_nodename:
        named.append(_nodes.hypervisor_hostname == text("nodename"))
    amounts = _screen_amounts(shape)
    return sa.and_(
        *named,
        sa.or_(
            is_untracked(),
            sa.and_(*_screen_facts(shape), sa.or_(sa.and_(*amounts), has_guest())),
        ),
    )


def is_untracked() -> Condition:
    """Return the condition that a node passes every screen: its driver tracks no resources."""
    return _nodes.admission_flags.bitwise_and(UNTRACKED) != 0


def has_guest() -> Condition:
    """Return the condition that a node has the workload's guest, and passes by any amount."""
    guests = sa.select(_guests.compute_node_id).where(_guests.uuid == text("workload"))
    return _nodes.id.in_(guests)


def _screen_facts(shape: RequestShape) -> list[Condition]:
    """Return the conditions that a node has what the request needs."""
    # Canonical JSON contains a name as it is rendered by itself.
    return [
        _nodes.admission_flags.bitwise_and(whole("flags")) == 0,
        *(_has_text(_nodes.traits, f"trait_{index}") for index in range(shape.traits)),
        *(_has_text(_nodes.inventory, f"class_{index}") for index in range(shape.classes)),
    ]


def _screen_amounts(shape: RequestShape) -> list[Condition]:
    """Return the conditions that the amounts fit a node."""
    amounts = dict(shape.amounts)
    rows = (
        (VCPU, _nodes.vcpus * MILLI, VCPU_MILLI_USED, FREE["vcpu_milli"]),
        (PCPU, _nodes.pcpus, _nodes.pcpus_used, FREE_PCPUS),
        (DISK, _nodes.local_gb * MIB_PER_GIB, DISK_MB_USED, FREE["disk_mb"]),
    )
    return [
        *(
            _fits(name, amounts[name], total, used, free)
            for name, total, used, free in rows
            if amounts[name].has_amount
        ),
        _fits_memory(amounts[MEMORY], shape.kind is WorkloadKind.INSTANCE),
    ]


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


def _fits(name: str, wanted: AmountShape, total: Amount, used: Amount, free: Amount) -> Condition:
    if not wanted.is_limited:
        return sa.true()
    if wanted.has_own_limit:
        return sa.and_(free >= whole(amount_name(name)), total >= whole(amount_name(name)))
    return used <= whole(room_name(name))


def _fits_memory(wanted: AmountShape, is_instance: bool) -> Condition:
    """Return the condition of memory, to which a driver may add an overhead for instances."""
    if not wanted.is_limited or not (wanted.has_amount or is_instance):
        return sa.true()
    overhead: Amount = _nodes.overhead_mb if is_instance else sa.literal(0)
    if wanted.has_own_limit:
        amount = whole(amount_name(MEMORY))
        fits = sa.and_(FREE["memory_mb"] - overhead >= amount, _nodes.memory_mb >= amount)
    else:
        fits = _nodes.memory_mb_used + overhead <= whole(room_name(MEMORY))
    return fits if wanted.has_amount else sa.or_(overhead == 0, fits)


def _has_text(column: Amount, name: str) -> Condition:
    return has_text(sa.type_coerce(column, sa.Text()), text(name))
