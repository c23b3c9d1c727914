"""``claims``: ledger transactions, each with its node's row locked from the start.

What else decides is read by a statement of its own after the lock: the one
that waits for the lock sees other tables as they were before the wait. A claim
costs four statements and so does an abort, however many guests there are.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting import ledger, moves
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
from nodetracker.model.claim import (
    ACTIVE_STATES,
    Claim,
    ClaimRequest,
    ClaimState,
    ReleaseReason,
    SplitBrain,
)
from nodetracker.model.migration import OPEN, RUNNING, MigrationStatus
from nodetracker.model.numa_placement import NumaPlacement, decode_placement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceGate
from nodetracker.ports import LedgerTerms

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c
_services = tables.services.c
_devices = tables.pci_devices.c

LEDGER_COLUMNS = (
    "vcpus", "vcpus_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used", "local_gb",
    "local_gb_used", "cpu_used", "disk_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "reserved", "overhead", "inventory", "traits", "facts",
    "numa_topology", "tracks_resources",
)  # fmt: skip
_GATE_COLUMNS = tuple(item.name for item in dataclasses.fields(ServiceGate))
_GUEST = "guest_"
_SERVICE = "service_"
_DEVICE = "device_"


def create_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    terms: LedgerTerms,
) -> Claim:
    """See `Store.create_claim`; a uuid that is there already violates its unique key."""
    moves.check_is_no_move(request)
    node = _lock_for(connection, request, host, nodename)
    if node is None:
        raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
    return grant(connection, request, node, terms)


def grant(
    connection: sa.Connection,
    request: ClaimRequest,
    node: LockedNode,
    terms: LedgerTerms,
    reasons: Sequence[str] = (),
) -> Claim:
    """Admit a request on a locked node and write its claim.

    Args:
        node: as `read_for` gives it.
        reasons: against it, whatever the node says.

    Raises:
        ClaimRefusedError: there are such, or the node has its own.
    """
    answer = _judge(connection, request, node, terms)
    reasons = [*reasons, *answer.reasons]
    if reasons:
        # What the same request was granted before may be just what is in its way.
        return answer_again(connection, request) or _refuse(reasons)
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
    node, claim, *_ = _lock_claim(connection, uuid)
    changed = replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    return _change_active(connection, node, claim, changed)


def renew_claim(connection: sa.Connection, uuid: str, terms: LedgerTerms) -> Claim:
    """See `Store.renew_claim`."""
    node, claim, *_ = _lock_claim(connection, uuid)
    if claim.state is ClaimState.CONFIRMED:
        return claim
    later = node.now + timedelta(seconds=terms.claim_timeout)
    return _change_active(connection, node, claim, replace(claim, expires_at=later))


def abort_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.abort_claim`."""
    node, claim, others, moved_by = _lock_claim(connection, uuid)
    moves.check_not_moving(claim, moved_by)
    if not claim.is_active:
        return claim
    if claim.migration_uuid is not None:
        _cancel(connection, claim, node)
    return release(connection, node, claim, others, ReleaseReason.ABORTED)


def release(
    connection: sa.Connection,
    node: LockedNode,
    claim: Claim,
    others: Sequence[Claim],
    reason: ReleaseReason,
) -> Claim:
    """Release a claim on its locked node; what it covered counts by itself again.

    One that expired before is told another reason and gives nothing back.

    Args:
        node: with its devices if the claim has any.
        others: the workload's other active claims on this node, oldest first.
    """
    released = ledger.release(claim, reason, node.now)
    write_state(connection, released)
    if not claim.is_active:
        _charge(connection, node, Charge(), Charge())
        return released
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
    conditions: list[sa.ColumnElement[bool]] = []
    if host is not None:
        conditions.append(_nodes.host == host)
    if state is not None:
        conditions.append(_claims.state == state.value)
    if uuid is not None:
        conditions.append(_claims.uuid == uuid)
    return select_claims(connection, *conditions)


def select_claims(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Claim]:
    """Return claims, oldest first."""
    query = (
        sa.select(tables.claims, _nodes.host, _nodes.hypervisor_hostname)
        .join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
        .where(*conditions)
        .order_by(_claims.created_at, _claims.id)
    )
    return [
        codec.decode_claim(row, row["host"], row["hypervisor_hostname"])
        for row in connection.execute(query).mappings()
    ]


def list_split_brains(connection: sa.Connection, host: str) -> list[SplitBrain]:
    """See `Store.list_split_brains`."""
    other, place = tables.claims.alias("other_claims"), tables.compute_nodes.alias("other_nodes")
    active = [state.value for state in ACTIVE_STATES]
    both = [_claims.uuid, other.c.uuid]
    is_tied = sa.exists().where(
        _migrations.workload_uuid == _claims.workload_uuid,
        _migrations.status.in_([status.value for status in OPEN]),
        _migrations.source_claim.in_(both),
        _migrations.dest_claim.in_(both),
    )
    rows = connection.execute(
        sa.select(
            _nodes.hypervisor_hostname,
            _claims.workload_uuid,
            place.c.host,
            place.c.hypervisor_hostname,
        )
        .select_from(tables.compute_nodes)
        .join(tables.claims, _claims.compute_node_id == _nodes.id)
        .join(
            other,
            sa.and_(
                other.c.workload_uuid == _claims.workload_uuid,
                other.c.compute_node_id != _claims.compute_node_id,
            ),
        )
        .join(place, place.c.id == other.c.compute_node_id)
        .where(
            _nodes.host == host,
            _claims.state.in_(active),
            other.c.state.in_(active),
            ~is_tied,
        )
    )
    return sorted({SplitBrain(*row) for row in rows})


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete claims that were released earlier and are no part of a migration; return how many.

    Their nodes are read again by whoever remembers them.
    """
    is_over = sa.and_(
        _claims.state == ClaimState.RELEASED.value,
        _claims.updated_at < before,
        _claims.uuid.not_in(sa.select(_migrations.source_claim)),
        _claims.uuid.not_in(sa.select(_migrations.dest_claim)),
    )
    node_ids = connection.execute(sa.select(_claims.compute_node_id).where(is_over).distinct())
    ids = sorted(node_ids.scalars())
    lock_rows(connection, _nodes.id.in_(ids))
    deleted = connection.execute(sa.delete(tables.claims).where(is_over)).rowcount
    touch(connection, ids)
    return deleted


def touch(connection: sa.Connection, node_ids: Iterable[int]) -> None:
    """Let the agents of nodes read their ledgers again."""
    wanted = sorted(node_ids)
    if wanted:
        connection.execute(
            sa.update(tables.compute_nodes)
            .where(_nodes.id.in_(wanted))
            .values(generation=_nodes.generation + 1)
        )


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


def _refuse(reasons: Sequence[str]) -> Claim:
    raise ClaimRefusedError(reasons)


def _lock_for(
    connection: sa.Connection, request: ClaimRequest, host: str, nodename: str
) -> LockedNode | None:
    """Lock a node and read what admitting a request needs."""
    is_node = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    found = read_for(connection, lock_rows(connection, is_node), request)
    return next(iter(found.values()), None)


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


def lock_rows(
    connection: sa.Connection, which: "sa.ColumnElement[bool]", *more: "sa.ColumnElement[Any]"
) -> Sequence[sa.RowMapping]:
    """Lock nodes' rows in id order and return what of them decides.

    Args:
        more: columns of what never changes; the rest is read once the lock is held.
    """
    return (
        connection.execute(
            sa.select(
                _nodes.id,
                _nodes.host,
                _nodes.hypervisor_hostname,
                *(_nodes[name] for name in LEDGER_COLUMNS),
                *more,
            )
            .where(which)
            .order_by(_nodes.id)
            .with_for_update()
        )
        .mappings()
        .all()
    )


def read_for(
    connection: sa.Connection, rows: Sequence[sa.RowMapping], request: ClaimRequest
) -> dict[int, LockedNode]:
    """Read what admitting a request needs of locked nodes, by their ids."""
    nodes = read_beside(connection, rows, request.workload.uuid, bool(request.pci_requests))
    workload = request.workload.uuid
    return {
        node.id: replace(node, placements=_read_placements(connection, node.id, workload))
        if request.numa is not None or _has_cells(node)
        else node
        for node in nodes.values()
    }


def read_beside(
    connection: sa.Connection,
    rows: Sequence[sa.RowMapping],
    workload_uuid: str,
    has_devices: bool,
) -> dict[int, LockedNode]:
    """Return locked nodes by id with their hosts' services and one workload's guests.

    Args:
        rows: of `lock_rows`.
        has_devices: the nodes' PCI devices are asked for, too.
    """
    if not rows:
        return {}
    is_guest = sa.and_(_guests.compute_node_id == _nodes.id, _guests.uuid == workload_uuid)
    is_service = sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)
    query = sa.select(
        _nodes.id.label("node_id"),
        utc_now().label("now"),
        *(
            _below(tables.guests, name, is_guest).label(_GUEST + name)
            for name in codec.GUEST_COLUMNS
        ),
        *(
            _below(tables.services, name, is_service).label(_SERVICE + name)
            for name in _GATE_COLUMNS
        ),
    ).where(_nodes.id.in_([row["id"] for row in rows]))
    if has_devices:  # a row each
        below = tables.compute_nodes.outerjoin(
            tables.pci_devices, _devices.compute_node_id == _nodes.id
        )
        query = query.add_columns(*tables.pci_devices.c).select_from(below)
    beside: dict[int, list[sa.RowMapping]] = {}
    for row in connection.execute(query).mappings():
        beside.setdefault(row["node_id"], []).append(row)
    return {
        row["id"]: replace(
            _locked_node(row, found[0]),
            service=_decode_gate(found[0]),
            devices=_decode_devices(found) if has_devices else {},
        )
        for row in rows
        if (found := beside[row["id"]])
    }


def _decode_gate(row: sa.RowMapping) -> ServiceGate | None:
    columns = _part(row, _SERVICE)
    return ServiceGate(**columns) if columns["created_at"] else None


def _locked_node(row: sa.RowMapping, beside: sa.RowMapping) -> LockedNode:
    guest = _part(beside, _GUEST)
    return LockedNode(
        id=row["id"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        values=codec.decode_some_values(row, LEDGER_COLUMNS),
        service=None,
        guest=codec.decode_guest(guest) if guest["uuid"] else None,
        now=beside["now"],
    )


def _below(table: sa.Table, name: str, *conditions: "sa.ColumnElement[bool]") -> Any:
    return sa.select(table.c[name]).where(*conditions).scalar_subquery()


def _part(row: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)
    }


def _lock_claim(
    connection: sa.Connection, uuid: str
) -> tuple[LockedNode, Claim, list[Claim], str | None]:
    """Lock a claim's node; return it with the claim and its workload's other active claims there.

    The last is the running migration whose source the claim is.

    Raises:
        NotFoundError: there is no such claim.
    """
    node_id = sa.select(_claims.compute_node_id).where(_claims.uuid == uuid).scalar_subquery()
    own = sa.select(_claims.devices).where(_claims.uuid == uuid).scalar_subquery()  # never change
    locked = lock_rows(connection, _nodes.id == node_id, own.label("claim_devices"))
    if not locked:
        raise NotFoundError(f"there is no claim {uuid}")
    (row,) = locked
    workload = sa.select(_claims.workload_uuid).where(_claims.uuid == uuid).scalar_subquery()
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    moved_by = (
        sa.select(sa.func.max(_migrations.uuid))
        .where(
            _migrations.workload_uuid == _claims.workload_uuid,
            _migrations.source_claim == _claims.uuid,
            _migrations.status.in_([status.value for status in RUNNING]),
        )
        .scalar_subquery()
    )
    below = tables.claims.outerjoin(tables.guests, is_guest)
    columns = [
        *tables.claims.c,
        utc_now().label("now"),
        moved_by.label("moved_by"),
        *(_guests[name].label(_GUEST + name) for name in codec.GUEST_COLUMNS),
    ]
    if row["claim_devices"]:  # with the node's devices, a row each
        below = below.outerjoin(
            tables.pci_devices, _devices.compute_node_id == _claims.compute_node_id
        )
        columns += [_devices[name].label(_DEVICE + name) for name in codec.DEVICE_COLUMNS]
    query = (
        sa.select(*columns)
        .select_from(below)
        .where(_claims.compute_node_id == row["id"], _claims.workload_uuid == workload)
        .order_by(_claims.created_at, _claims.id)
    )
    rows = connection.execute(query).mappings().all()
    devices = (
        _decode_devices(_part(found, _DEVICE) for found in rows) if row["claim_devices"] else {}
    )
    node = replace(_locked_node(row, rows[0]), devices=devices)
    of_workload = {found["uuid"]: found for found in rows}
    moving = of_workload[uuid]["moved_by"]
    claims = {
        key: codec.decode_claim(found, node.host, node.nodename)
        for key, found in of_workload.items()
    }
    claim = claims.pop(uuid)
    return node, claim, [other for other in claims.values() if other.is_active], moving


def _cancel(connection: sa.Connection, claim: Claim, node: LockedNode) -> None:
    """End the open migration whose destination is released."""
    connection.execute(
        sa.update(tables.migrations)
        .where(
            _migrations.uuid == claim.migration_uuid,
            _migrations.status.in_([status.value for status in OPEN]),
        )
        .values(status=MigrationStatus.CANCELLED.value, updated_at=node.now)
    )


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
    write_active(connection, node, changed)
    return changed


def write_active(connection: sa.Connection, node: LockedNode, claim: Claim) -> LockedNode:
    """Write another state of a claim that counts before and after; return its node as it is then.

    Args:
        node: with its devices if the claim has any.
    """
    write_state(connection, claim)
    devices = None
    if claim.devices and claim.state is ClaimState.CONFIRMED:
        devices = allocate_devices(node.devices, claim.devices, claim.uuid)
    _charge(connection, node, Charge(), Charge(), None, devices)
    return node if devices is None else replace(node, devices=devices)


def write_state(connection: sa.Connection, claim: Claim) -> None:
    """Write what of a claim changes in its life."""
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


def _decode_devices(rows: Iterable[Mapping[Any, Any]]) -> dict[str, TrackedDevice]:
    found = [codec.decode_device(row) for row in rows if row["address"] is not None]
    return {device.address: device for device in found}


def _cover(connection: sa.Connection, node: LockedNode, claim_uuid: str | None) -> None:
    """Write which claim covers the workload's guest."""
    connection.execute(
        sa.update(tables.guests).where(_is_guest(node)).values(claim_uuid=claim_uuid)
    )
