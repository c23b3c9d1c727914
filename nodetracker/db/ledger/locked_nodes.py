"""Nodes as ledger transactions read them: the row locked first, then all else that decides.

What else decides is read by a statement of its own after the lock: the one
that waits for the lock sees other tables as they were before the wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.db import codec
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.errors import NotFoundError
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.migration import RUNNING
from nodetracker.model.numa_placement import NumaPlacement, decode_placement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceAvailability

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
    "numa_topology", "tracks_resources", "gpus",
)  # fmt: skip
_GUEST = "guest_"
_SERVICE = "service_"
_DEVICE = "device_"


def lock_for(
    connection: sa.Connection, request: ClaimRequest, host: str, nodename: str
) -> LockedNode | None:
    """Lock a node and read what admitting a request needs."""
    is_node = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    found = read_for(connection, lock_rows(connection, is_node), request)
    return next(iter(found.values()), None)


def lock_claim(
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
    nodes = read_related(connection, rows, request.workload.uuid, bool(request.pci_requests))
    workload = request.workload.uuid
    return {
        node.id: replace(node, placements=read_placements(connection, node.id, workload))
        if request.numa is not None or has_cells(node)
        else node
        for node in nodes.values()
    }


def read_related(
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
            for name in codec.GATE_COLUMNS
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
            service=_decode_availability(found[0]),
            devices=_decode_devices(found) if has_devices else {},
        )
        for row in rows
        if (found := beside[row["id"]])
    }


def has_cells(node: LockedNode) -> bool:
    """Tell whether the workload's guest is bound to NUMA cells."""
    return node.guest is not None and bool(node.guest.pins.cells)


def read_placements(
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


def _decode_availability(row: sa.RowMapping) -> ServiceAvailability | None:
    columns = _part(row, _SERVICE)
    return ServiceAvailability(**columns) if columns["created_at"] else None


def _decode_devices(rows: Iterable[Mapping[Any, Any]]) -> dict[str, TrackedDevice]:
    found = [codec.decode_device(row) for row in rows if row["address"] is not None]
    return {device.address: device for device in found}


def _below(table: sa.Table, name: str, *conditions: "sa.ColumnElement[bool]") -> Any:
    return sa.select(table.c[name]).where(*conditions).scalar_subquery()


def _part(row: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)
    }
