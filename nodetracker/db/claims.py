"""``claims``: ledger transactions, each with its node's row locked from the start.

What else decides is read by a statement of its own after the lock: the one
that waits for the lock sees other tables as they were before the wait. A claim
costs four statements and so does an abort, however many guests there are.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting import ledger
from nodetracker.accounting.admission import Admission
from nodetracker.accounting.ledger import LockedNode
from nodetracker.accounting.pci_pools import pci_columns
from nodetracker.accounting.pci_state import allocate_devices
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.sql import utc_now
from nodetracker.errors import (
    ClaimRefusedError,
    NotFoundError,
    RefusedError,
)
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.numa_placement import NumaPlacement, decode_placement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceGate
from nodetracker.ports import LedgerTerms

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_services = tables.services.c
_devices = tables.pci_devices.c

LEDGER_COLUMNS = (
    "vcpus", "vcpus_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used", "local_gb",
    "local_gb_used", "cpu_used", "disk_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "reserved", "overhead", "inventory", "traits", "facts",
    "numa_topology",
)  # fmt: skip
_GATE_COLUMNS = tuple(item.name for item in dataclasses.fields(ServiceGate))
_GUEST = "guest_"
_SERVICE = "service_"


def create_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    terms: LedgerTerms,
) -> Claim:
    """See `Store.create_claim`; a uuid that is there already violates its unique key."""
    node = _lock_for(connection, request, host, nodename)
    if node is None:
        raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
    answer = _judge(connection, request, node, terms)
    if answer.reasons:
        # What the same request was granted before may be just what is in its way.
        return answer_again(connection, request) or _refuse(answer)
    claim = ledger.make_claim(request, node, answer, terms.claim_timeout)
    connection.execute(
        sa.insert(tables.claims).values(compute_node_id=node.id, **codec.encode_claim(claim))
    )
    added = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    placements = None
    if claim.numa is not None:
        placements = (*node.placements, claim.numa)
    elif _has_cells(node):
        placements = node.placements
    devices = ledger.give_devices(node, claim) if claim.devices else None
    _charge(connection, node, added, ledger.credit_of(node), placements, devices)
    if node.guest is not None:
        _cover(connection, node, claim.uuid)
    return claim


def try_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    terms: LedgerTerms,
) -> Admission:
    """See `Store.try_claim`."""
    node = _lock_for(connection, request, host, nodename)
    if node is None:
        raise NotFoundError(f"there is no node {nodename} on host {host}")
    return _judge(connection, request, node, terms)


def answer_again(connection: sa.Connection, request: ClaimRequest) -> Claim | None:
    """See `ledger.answer_again`."""
    return ledger.answer_again(list_claims(connection, uuid=request.uuid), request)


def confirm_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.confirm_claim`."""
    node, claim, _ = _lock_claim(connection, uuid)
    changed = replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    return _change_active(connection, node, claim, changed)


def renew_claim(connection: sa.Connection, uuid: str, terms: LedgerTerms) -> Claim:
    """See `Store.renew_claim`."""
    node, claim, _ = _lock_claim(connection, uuid)
    if claim.state is ClaimState.CONFIRMED:
        return claim
    later = node.now + timedelta(seconds=terms.claim_timeout)
    return _change_active(connection, node, claim, replace(claim, expires_at=later))


def abort_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.abort_claim`."""
    node, claim, others = _lock_claim(connection, uuid)
    if not claim.is_active:
        return claim
    released = ledger.release(claim, ReleaseReason.ABORTED, node.now)
    _write_state(connection, released)
    added = Charge()
    if node.guest is not None and node.guest.claim_uuid == claim.uuid:
        if others:
            _cover(connection, node, others[-1].uuid)
        elif node.guest.missing_since is None:
            _cover(connection, node, None)
            added = charge_of_guest(node.guest, node.overhead_mb)
        else:
            connection.execute(sa.delete(tables.guests).where(_is_guest(node)))
    removed = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    is_placed = claim.numa is not None or _has_cells(node)
    placements = _read_placements(connection, node.id) if is_placed else None
    devices = ledger.take_devices(node, claim) if claim.devices else None
    _charge(connection, node, added, removed, placements, devices)
    return released


def list_claims(
    connection: sa.Connection,
    host: str | None = None,
    state: ClaimState | None = None,
    uuid: str | None = None,
) -> list[Claim]:
    """See `Store.list_claims`."""
    query = (
        sa.select(tables.claims, _nodes.host, _nodes.hypervisor_hostname)
        .join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
        .order_by(_claims.created_at, _claims.id)
    )
    if host is not None:
        query = query.where(_nodes.host == host)
    if state is not None:
        query = query.where(_claims.state == state.value)
    if uuid is not None:
        query = query.where(_claims.uuid == uuid)
    return [
        codec.decode_claim(row, row["host"], row["hypervisor_hostname"])
        for row in connection.execute(query).mappings()
    ]


def _is_guest(node: LockedNode) -> "sa.ColumnElement[bool]":
    assert node.guest is not None
    return sa.and_(_guests.compute_node_id == node.id, _guests.uuid == node.guest.uuid)


def _judge(
    connection: sa.Connection, request: ClaimRequest, node: LockedNode, terms: LedgerTerms
) -> Admission:
    used = _sum_resources(connection, node) if request.amounts.resources else {}
    return ledger.judge_claim(
        request, node, used, terms.service_down_time, terms.is_packing, terms.aliases
    )


def _refuse(answer: Admission) -> Claim:
    raise ClaimRefusedError(answer.reasons)


def _lock_for(
    connection: sa.Connection, request: ClaimRequest, host: str, nodename: str
) -> LockedNode | None:
    """Lock a node and read what admitting a request needs."""
    node = _lock_node(connection, request, host, nodename)
    if node is None or (request.numa is None and not _has_cells(node)):
        return node
    placements = _read_placements(connection, node.id, request.workload.uuid)
    return replace(node, placements=placements)


def _has_cells(node: LockedNode) -> bool:
    """Tell whether the workload's guest is bound to NUMA cells."""
    return node.guest is not None and bool(node.guest.pins.cells)


def _read_placements(
    connection: sa.Connection, node_id: int, but: str = ""
) -> tuple[NumaPlacement, ...]:
    """Return where the node's active claims and unclaimed guests are on its NUMA cells.

    Args:
        but: uuid of a workload whose guest is left out.
    """
    found = connection.execute(
        sa.union_all(
            sa.select(_claims.numa).where(
                _claims.compute_node_id == node_id,
                _claims.state != ClaimState.RELEASED.value,
                _claims.numa.is_not(None),
            ),
            sa.select(_guests.pins).where(
                _guests.compute_node_id == node_id,
                _guests.claim_uuid.is_(None),
                _guests.pins.is_not(None),
                _guests.uuid != but,
            ),
        )
    ).scalars()
    return tuple(decode_placement(data) for data in found if data is not None)


def _lock(connection: sa.Connection, which: "sa.ColumnElement[bool]") -> sa.RowMapping | None:
    """Lock a node's row and return what of it decides."""
    return (
        connection.execute(
            sa.select(
                _nodes.id,
                _nodes.host,
                _nodes.hypervisor_hostname,
                *(_nodes[name] for name in LEDGER_COLUMNS),
            )
            .where(which)
            .with_for_update()
        )
        .mappings()
        .one_or_none()
    )


def _lock_node(
    connection: sa.Connection, request: ClaimRequest, host: str, nodename: str
) -> LockedNode | None:
    """Lock a node's row; return it with its host's service and one workload's guest."""
    row = _lock(connection, sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename))
    if row is None:
        return None
    is_guest = sa.and_(_guests.compute_node_id == row["id"], _guests.uuid == request.workload.uuid)
    is_service = sa.and_(_services.host == host, _services.binary == COMPUTE_BINARY)
    query = sa.select(
        utc_now().label("now"),
        *(
            _below(tables.guests, name, is_guest).label(_GUEST + name)
            for name in codec.GUEST_COLUMNS
        ),
        *(
            _below(tables.services, name, is_service).label(_SERVICE + name)
            for name in _GATE_COLUMNS
        ),
    )
    if request.pci_requests:  # with the node's devices, a row each
        below = tables.compute_nodes.outerjoin(
            tables.pci_devices, _devices.compute_node_id == _nodes.id
        )
        query = query.add_columns(*tables.pci_devices.c).select_from(below)
        query = query.where(_nodes.id == row["id"])
    rows = list(connection.execute(query).mappings())
    service = _part(rows[0], _SERVICE)
    gate = ServiceGate(**service) if service["created_at"] else None
    devices = _decode_devices(rows) if request.pci_requests else {}
    return replace(_locked_node(row, rows[0], gate), devices=devices)


def _locked_node(
    row: sa.RowMapping, beside: sa.RowMapping, service: ServiceGate | None
) -> LockedNode:
    guest = _part(beside, _GUEST)
    return LockedNode(
        id=row["id"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        values=codec.decode_some_values(row, LEDGER_COLUMNS),
        service=service,
        guest=codec.decode_guest(guest) if guest["uuid"] else None,
        now=beside["now"],
    )


def _below(table: sa.Table, name: str, *conditions: "sa.ColumnElement[bool]") -> Any:
    return sa.select(table.c[name]).where(*conditions).scalar_subquery()


def _part(row: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)
    }


def _lock_claim(connection: sa.Connection, uuid: str) -> tuple[LockedNode, Claim, list[Claim]]:
    """Lock a claim's node; return it with the claim and its workload's other active claims there.

    Raises:
        NotFoundError: there is no such claim.
    """
    node_id = sa.select(_claims.compute_node_id).where(_claims.uuid == uuid).scalar_subquery()
    row = _lock(connection, _nodes.id == node_id)
    if row is None:
        raise NotFoundError(f"there is no claim {uuid}")
    workload = sa.select(_claims.workload_uuid).where(_claims.uuid == uuid).scalar_subquery()
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    rows = (
        connection.execute(
            sa.select(
                tables.claims,
                utc_now().label("now"),
                *(_guests[name].label(_GUEST + name) for name in codec.GUEST_COLUMNS),
            )
            .select_from(tables.claims.outerjoin(tables.guests, is_guest))
            .where(_claims.compute_node_id == row["id"], _claims.workload_uuid == workload)
            .order_by(_claims.created_at, _claims.id)
        )
        .mappings()
        .all()
    )
    node = _locked_node(row, rows[0], None)
    claims = [codec.decode_claim(row, node.host, node.nodename) for row in rows]
    (claim,) = (found for found in claims if found.uuid == uuid)
    others = [found for found in claims if found.uuid != uuid and found.is_active]
    devices = _read_devices(connection, node.id) if claim.devices else {}
    return replace(node, devices=devices), claim, others


def _sum_resources(connection: sa.Connection, node: LockedNode) -> dict[str, int]:
    """Return what the node's active claims hold of further resource classes."""
    held: dict[str, int] = {}
    for resources in connection.execute(
        sa.select(_claims.resources).where(
            _claims.compute_node_id == node.id,
            _claims.state.in_([state.value for state in ACTIVE_STATES]),
        )
    ).scalars():
        for name, amount in resources.items():
            held[name] = held.get(name, 0) + amount
    return held


def _change_active(
    connection: sa.Connection, node: LockedNode, claim: Claim, changed: Claim
) -> Claim:
    """Write another state of a claim that counts before and after.

    Raises:
        RefusedError: it is released.
    """
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
    if changed == claim:
        return claim
    changed = replace(changed, updated_at=node.now)
    _write_state(connection, changed)
    devices = None
    if changed.devices and changed.state is ClaimState.CONFIRMED:
        devices = allocate_devices(node.devices, changed.devices, changed.uuid)
    _charge(connection, node, Charge(), Charge(), None, devices)
    return changed


def _write_state(connection: sa.Connection, claim: Claim) -> None:
    connection.execute(
        sa.update(tables.claims)
        .where(_claims.uuid == claim.uuid)
        .values(codec.encode_claim_state(claim))
    )


def _charge(
    connection: sa.Connection,
    node: LockedNode,
    added: Charge,
    removed: Charge,
    placements: Sequence[NumaPlacement] | None = None,
    devices: Mapping[str, TrackedDevice] | None = None,
) -> None:
    """Write the node's usage; its generation tells the agent to read the ledger again.

    ``updated_at`` stays the agent's, as it paces the writing of measurements.

    Args:
        placements: all on its NUMA cells from now on, None when none changed.
        devices: all of it from now on, None when none changed.
    """
    columns = ledger.charge_row(node, added, removed)
    if placements is not None:
        columns["numa_topology"] = ledger.topology_column(node.values.numa_topology, placements)
    if devices is not None:
        columns |= pci_columns(devices.values())
        _write_devices(connection, node, devices)
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(_nodes.id == node.id)
        .values(
            generation=_nodes.generation + 1,
            **columns,
        )
    )


def _write_devices(
    connection: sa.Connection, node: LockedNode, devices: Mapping[str, TrackedDevice]
) -> None:
    """Write what changed of a node's devices by one statement; what is gone goes too."""
    changed = [
        {"p_address": device.address, "p_status": device.status.value, "p_claim": device.claim_uuid}
        for address, device in devices.items()
        if node.devices[address] != device
    ]
    if changed:
        connection.execute(
            sa.update(tables.pci_devices)
            .where(
                _devices.compute_node_id == node.id, _devices.address == sa.bindparam("p_address")
            )
            .values(status=sa.bindparam("p_status"), claim_uuid=sa.bindparam("p_claim")),
            changed,
        )
    gone = sorted(node.devices.keys() - devices.keys())
    if gone:
        connection.execute(
            sa.delete(tables.pci_devices).where(
                _devices.compute_node_id == node.id, _devices.address.in_(gone)
            )
        )


def _read_devices(connection: sa.Connection, node_id: int) -> dict[str, TrackedDevice]:
    query = sa.select(tables.pci_devices).where(_devices.compute_node_id == node_id)
    return _decode_devices(connection.execute(query).mappings())


def _decode_devices(rows: Iterable[Mapping[Any, Any]]) -> dict[str, TrackedDevice]:
    found = [codec.decode_device(row) for row in rows if row["address"] is not None]
    return {device.address: device for device in found}


def _cover(connection: sa.Connection, node: LockedNode, claim_uuid: str | None) -> None:
    """Write which claim covers the workload's guest."""
    connection.execute(
        sa.update(tables.guests).where(_is_guest(node)).values(claim_uuid=claim_uuid)
    )
