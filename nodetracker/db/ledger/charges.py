"""What ledger transactions write of a locked node: its usage, its devices, who covers a guest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.accounting.pci.pools import pci_columns
from nodetracker.accounting.usage import Charge
from nodetracker.db.schema import tables
from nodetracker.model.numa_placement import NumaPlacement
from nodetracker.model.pci import TrackedDevice

_nodes = tables.compute_nodes.c
_guests = tables.guests.c
_devices = tables.pci_devices.c


def update_usage(
    connection: sa.Connection,
    node: LockedNode,
    added: Charge,
    removed: Charge,
    placements: Sequence[NumaPlacement] | None = None,
    devices: Mapping[str, TrackedDevice] | None = None,
    inventory: Mapping[str, Any] | None = None,
) -> None:
    """Write the node's usage; its generation tells the agent to read the ledger again.

    ``updated_at`` stays the agent's, as it paces the writing of measurements.

    Args:
        placements: all on its NUMA cells from now on, None when none changed.
        devices: all of it from now on, None when none changed.
        inventory: the column from now on, None when it stays.
    """
    columns = grants.charge_row(node, added, removed, inventory)
    if placements is not None:
        columns["numa_topology"] = grants.topology_column(node.values.numa_topology, placements)
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


def assign_claim(connection: sa.Connection, node: LockedNode, claim_uuid: str | None) -> None:
    """Write which claim covers the workload's guest."""
    connection.execute(
        sa.update(tables.guests).where(_is_guest(node)).values(claim_uuid=claim_uuid)
    )


def delete_guest(connection: sa.Connection, node: LockedNode) -> None:
    """Delete the workload's guest, which counts for nothing any more."""
    connection.execute(sa.delete(tables.guests).where(_is_guest(node)))


def bump_generation(connection: sa.Connection, node_ids: Iterable[int]) -> None:
    """Let the agents of nodes read their ledgers again."""
    wanted = sorted(node_ids)
    if wanted:
        connection.execute(
            sa.update(tables.compute_nodes)
            .where(_nodes.id.in_(wanted))
            .values(generation=_nodes.generation + 1)
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


def _is_guest(node: LockedNode) -> "sa.ColumnElement[bool]":
    assert node.guest is not None
    return sa.and_(_guests.compute_node_id == node.id, _guests.uuid == node.guest.uuid)
