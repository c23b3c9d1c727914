"""Lock and read claims and their nodes for ledger transactions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.locked import LockedClaim
from nodetracker.accounting.usage import charge_of_claims
from nodetracker.db import codec
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.ledger.locked_nodes import (
    DEVICE_PREFIX,
    GUEST_PREFIX,
    decode_devices,
    decode_locked_node,
    lock_rows,
    pick_columns,
    read_placements,
)
from nodetracker.db.schema import tables
from nodetracker.model.claim import OPEN, RUNNING, MigrationStatus
from nodetracker.model.errors import NotFoundError

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c
_devices = tables.pci_devices.c


def lock_claim(connection: sa.Connection, uuid: str, is_release: bool = False) -> LockedClaim:
    """Lock a claim's node; read the node, the claim and the migrations that it is part of.

    Args:
        is_release: the claim may be released: also lock the other ends of its open
            migrations, and read the node's NUMA placements if the claim or its
            guest has one.

    Raises:
        NotFoundError: the claim does not exist.
    """
    row, other_ends = _lock_rows(connection, uuid, is_release)
    rows = _select_workload(connection, uuid, row["id"], bool(row["claim_devices"]))
    node = decode_locked_node(row, rows[0])
    if row["claim_devices"]:
        devices = decode_devices(
            pick_columns(found, DEVICE_PREFIX, codec.DEVICE_COLUMNS) for found in rows
        )
        node = replace(node, devices=devices)
    of_workload = {found["uuid"]: found for found in rows}
    claims = {
        key: codec.decode_claim(found, node.host, node.nodename)
        for key, found in of_workload.items()
    }
    node = replace(node, claimed=charge_of_claims(claims.values(), node.overhead_mb))
    claim = claims.pop(uuid)
    if is_release and (claim.numa is not None or node.has_cells):
        node = read_placements(connection, {node.id: node})[node.id]
    return LockedClaim(
        claim,
        node,
        others=tuple(other for other in claims.values() if other.is_active),
        source_of=of_workload[uuid]["source_of"],
        destination_of=of_workload[uuid]["destination_of"],
        other_ends=other_ends,
    )


def _lock_rows(
    connection: sa.Connection, uuid: str, has_ends: bool
) -> tuple[sa.RowMapping, tuple[int, ...]]:
    """Lock rows in id order, by one statement; return the claim's and the ids of the others.

    Args:
        has_ends: also lock the other ends of its open migrations.
    """
    node_id = _select_own(_claims.compute_node_id, uuid)
    is_locked = _nodes.id == node_id
    if has_ends:
        is_locked = _nodes.id.in_([node_id, *_select_ends(uuid)])
    locked = lock_rows(
        connection,
        is_locked,
        node_id.label("claim_node_id"),
        _select_own(_claims.devices, uuid).label("claim_devices"),
    )
    if not locked:
        raise NotFoundError(f"no such claim: {uuid}")
    (row,) = (found for found in locked if found["id"] == found["claim_node_id"])
    return row, tuple(found["id"] for found in locked if found is not row)


def _select_own(column: "sa.ColumnElement[Any]", uuid: str) -> "sa.ScalarSelect[Any]":
    """Select a column of a claim that never changes."""
    return sa.select(column).where(_claims.uuid == uuid).scalar_subquery()


def _select_ends(uuid: str) -> "list[sa.ScalarSelect[int]]":
    """Select the nodes of the other claims of the open migrations from and to a claim.

    Each is a scalar, so that MariaDB looks the nodes up by id and locks no others.
    """
    is_open = _migrations.status.in_([status.value for status in OPEN])
    return [
        sa.select(sa.func.max(_claims.compute_node_id))
        .join_from(tables.migrations, tables.claims, _claims.uuid == other)
        .where(own == uuid, is_open)
        .scalar_subquery()
        for own, other in (
            (_migrations.source_claim, _migrations.dest_claim),
            (_migrations.dest_claim, _migrations.source_claim),
        )
    ]


def _select_workload(
    connection: sa.Connection, uuid: str, node_id: int, has_devices: bool
) -> Sequence[sa.RowMapping]:
    """Read all claims of a claim's workload on a node, oldest first, each with the guest.

    Args:
        has_devices: also read the node's PCI devices; one row for each claim and device.
    """
    workload = sa.select(_claims.workload_uuid).where(_claims.uuid == uuid).scalar_subquery()
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    source = tables.claims.outerjoin(tables.guests, is_guest)
    columns = [
        *tables.claims.c,
        utc_now().label("now"),
        _select_migration(_migrations.source_claim, RUNNING).label("source_of"),
        _select_migration(_migrations.dest_claim, OPEN).label("destination_of"),
        *(_guests[name].label(GUEST_PREFIX + name) for name in codec.GUEST_COLUMNS),
    ]
    if has_devices:
        source = source.outerjoin(
            tables.pci_devices, _devices.compute_node_id == _claims.compute_node_id
        )
        columns += [_devices[name].label(DEVICE_PREFIX + name) for name in codec.DEVICE_COLUMNS]
    query = (
        sa.select(*columns)
        .select_from(source)
        .where(_claims.compute_node_id == node_id, _claims.workload_uuid == workload)
        .order_by(_claims.created_at, _claims.id)
    )
    return connection.execute(query).mappings().all()


def _select_migration(
    side: "sa.ColumnElement[str]", statuses: Sequence[MigrationStatus]
) -> "sa.ScalarSelect[Any]":
    """Select the migration whose source or destination each claim is."""
    return (
        sa.select(sa.func.max(_migrations.uuid))
        .where(
            _migrations.workload_uuid == _claims.workload_uuid,
            side == _claims.uuid,
            _migrations.status.in_([status.value for status in statuses]),
        )
        .scalar_subquery()
    )
