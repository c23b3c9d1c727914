"""Apply the decisions of ledger transactions: claims, their nodes and their migration."""

from collections.abc import Iterable
from typing import TypeVar

import sqlalchemy as sa

from nodetracker.accounting.ledger.write import LedgerWrite, NodeWrite
from nodetracker.db import codec
from nodetracker.db.schema import tables

_nodes = tables.compute_nodes.c
_guests = tables.guests.c
_devices = tables.pci_devices.c
_claims = tables.claims.c
_migrations = tables.migrations.c

T = TypeVar("T")

# Built once: SQLAlchemy takes longer to build a statement with its values than to run it.
_INSERT_CLAIM = sa.insert(tables.claims)
_UPDATE_NODE = (
    sa.update(tables.compute_nodes)
    .where(_nodes.id == sa.bindparam("p_node"))
    .values(tables.raised_generation())
)


def apply_write(connection: sa.Connection, write: LedgerWrite[T]) -> T:
    """Write everything and return the answer; a duplicate new uuid violates its unique key."""
    if write.new_claim is not None:
        claim = write.new_claim
        connection.execute(
            _INSERT_CLAIM, {"compute_node_id": claim.node_id, **codec.encode_claim(claim)}
        )
    for claim in write.changed_claims:
        connection.execute(
            sa.update(tables.claims)
            .where(_claims.uuid == claim.uuid)
            .values(codec.encode_claim_state(claim))
        )
    for node in write.nodes:
        _write_node(connection, node)
    bump_generation(connection, [node.node_id for node in write.nodes if not node.columns])
    if write.new_migration is not None:
        connection.execute(
            sa.insert(tables.migrations).values(codec.encode_migration(write.new_migration))
        )
    if write.migration_step is not None:
        step = write.migration_step
        connection.execute(
            sa.update(tables.migrations)
            .where(_migrations.uuid == step.uuid)
            .values(status=step.status.value, updated_at=step.updated_at)
        )
    return write.answer


def bump_generation(connection: sa.Connection, node_ids: Iterable[int]) -> None:
    """Raise the generations of nodes in one statement, so that agents read their ledgers again."""
    ids = sorted(node_ids)
    if ids:
        connection.execute(
            sa.update(tables.compute_nodes)
            .where(_nodes.id.in_(ids))
            .values(tables.raised_generation())
        )


def _write_node(connection: sa.Connection, node: NodeWrite) -> None:
    _write_devices(connection, node)
    if node.columns:
        connection.execute(_UPDATE_NODE, {"p_node": node.node_id, **node.columns})
    for guest in node.guests.changed:
        connection.execute(
            sa.update(tables.guests)
            .where(_guests.compute_node_id == node.node_id, _guests.uuid == guest.uuid)
            .values(claim_uuid=guest.claim_uuid)
        )
    for guest in node.guests.removed:
        connection.execute(
            sa.delete(tables.guests).where(
                _guests.compute_node_id == node.node_id, _guests.uuid == guest.uuid
            )
        )


def _write_devices(connection: sa.Connection, node: NodeWrite) -> None:
    """Write all changed devices of a node in one statement, and delete removed ones in another."""
    if node.devices.changed:
        connection.execute(
            sa.update(tables.pci_devices)
            .where(
                _devices.compute_node_id == node.node_id,
                _devices.address == sa.bindparam("p_address"),
            )
            .values(status=sa.bindparam("p_status"), claim_uuid=sa.bindparam("p_claim")),
            [
                {
                    "p_address": device.address,
                    "p_status": device.status.value,
                    "p_claim": device.claim_uuid,
                }
                for device in node.devices.changed
            ],
        )
    if node.devices.removed:
        removed = sorted(device.address for device in node.devices.removed)
        connection.execute(
            sa.delete(tables.pci_devices).where(
                _devices.compute_node_id == node.node_id, _devices.address.in_(removed)
            )
        )
