"""Express by columns which nodes pass screening, as `accounting.ledger.screening` decides it."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.screening import (
    UNTRACKED,
    AmountScreen,
    list_amounts,
    refusing_flags,
)
from nodetracker.db.connection.dialect import has_text, utc_ago
from nodetracker.db.json_text import render_json
from nodetracker.db.schema import tables
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimRequest
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


def is_wanted(request: ClaimRequest) -> Condition:
    """Return the condition that a node is the requested one, and passes by its numbers."""
    names = ((_nodes.host, request.host), (_nodes.hypervisor_hostname, request.nodename))
    amounts = screen_amounts(request).values()
    return sa.and_(
        *(column == name for column, name in names if name is not None),
        sa.or_(
            is_untracked(),
            sa.and_(*screen_facts(request).values(), sa.or_(sa.and_(*amounts), has_guest(request))),
        ),
    )


def is_untracked() -> Condition:
    """Return the condition that a node passes every screen: its driver tracks no resources."""
    return _nodes.admission_flags.bitwise_and(UNTRACKED) != 0


def has_guest(request: ClaimRequest) -> Condition:
    """Return the condition that a node has the workload's guest, and passes by any amount."""
    guests = sa.select(_guests.compute_node_id).where(_guests.uuid == request.workload.uuid)
    return _nodes.id.in_(guests)


def screen_facts(request: ClaimRequest) -> dict[AdmissionCheck, Condition]:
    """Return for each check the condition that a node has what the request needs."""
    known = _nodes.admission_flags.bitwise_and(refusing_flags(request)) == 0
    return {
        AdmissionCheck.FACTS: known,
        **_has_each(AdmissionCheck.TRAITS, _nodes.traits, request.required_traits),
        **_has_each(AdmissionCheck.CLASSES, _nodes.inventory, request.amounts.resources),
    }


def screen_amounts(request: ClaimRequest) -> dict[AdmissionCheck, Condition]:
    """Return for each check of an amount the condition that it fits a node."""
    amounts = list_amounts(request)
    rows = (
        (AdmissionCheck.CPU, VCPU, _nodes.vcpus * MILLI, VCPU_MILLI_USED, FREE["vcpu_milli"]),
        (AdmissionCheck.PCPU, PCPU, _nodes.pcpus, _nodes.pcpus_used, FREE_PCPUS),
        (AdmissionCheck.DISK, DISK, _nodes.local_gb * MIB_PER_GIB, DISK_MB_USED, FREE["disk_mb"]),
    )
    fits = {
        check: _fits(amounts[name], total, used, free)
        for check, name, total, used, free in rows
        if amounts[name].amount
    }
    is_instance = request.workload.kind is WorkloadKind.INSTANCE
    return fits | {AdmissionCheck.RAM: _fits_memory(amounts[MEMORY], is_instance)}


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


def _fits(wanted: AmountScreen, total: Amount, used: Amount, free: Amount) -> Condition:
    if not wanted.is_limited:
        return sa.true()
    if wanted.has_own_limit:
        return sa.and_(free >= wanted.amount, total >= wanted.amount)
    return used <= wanted.limit - wanted.amount


def _fits_memory(wanted: AmountScreen, is_instance: bool) -> Condition:
    """Return the condition of memory, to which a driver may add an overhead for instances."""
    if not wanted.is_limited or not (wanted.amount or is_instance):
        return sa.true()
    overhead: Amount = _nodes.overhead_mb if is_instance else sa.literal(0)
    if wanted.has_own_limit:
        room = FREE["memory_mb"] - overhead
        fits = sa.and_(room >= wanted.amount, _nodes.memory_mb >= wanted.amount)
    else:
        fits = _nodes.memory_mb_used + overhead <= wanted.limit - wanted.amount
    return fits if wanted.amount else sa.or_(overhead == 0, fits)


def _has_each(
    check: AdmissionCheck, column: Amount, names: Iterable[str]
) -> dict[AdmissionCheck, Condition]:
    """Return the condition that canonical JSON contains names, nothing without names."""
    text = sa.type_coerce(column, sa.Text())
    found = [has_text(text, render_json(name)) for name in sorted(names)]
    return {check: sa.and_(*found)} if found else {}
