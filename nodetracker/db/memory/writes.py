"""Apply the decisions of ledger transactions to dicts."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeVar

from nodetracker.accounting.ledger.transaction import LedgerWrite, NodeWrite
from nodetracker.db.memory.tables import Tables
from nodetracker.model.change import ItemDiff

T = TypeVar("T")


def apply_write(tables: Tables, write: LedgerWrite[T]) -> T:
    """Write everything and return the answer."""
    if write.new_claim is not None:
        tables.claims[write.new_claim.uuid] = write.new_claim
        tables.ids[write.new_claim.uuid] = tables.next_id()
    tables.claims.update({claim.uuid: claim for claim in write.changed_claims})
    for node in write.nodes:
        _write_node(tables, node)
    if write.new_migration is not None:
        tables.migrations[write.new_migration.uuid] = write.new_migration
        tables.ids[write.new_migration.uuid] = tables.next_id()
    if write.migration_step is not None:
        step = write.migration_step
        tables.migrations[step.uuid] = dataclasses.replace(
            tables.migrations[step.uuid], status=step.status, updated_at=step.updated_at
        )
    return write.answer


def _write_node(tables: Tables, node: NodeWrite) -> None:
    record = tables.nodes[node.node_id]
    tables.nodes[node.node_id] = dataclasses.replace(
        record,
        generation=record.generation + 1,
        values=dataclasses.replace(record.values, **node.columns),
        guests=_merge(record.guests, node.guests, lambda guest: guest.uuid),
        devices=_merge(record.devices, node.devices, lambda device: device.address),
    )


def _merge(stored: Mapping[str, T], diff: ItemDiff[T], key: Callable[[T], str]) -> dict[str, T]:
    removed = {key(item) for item in diff.removed}
    kept = {name: item for name, item in stored.items() if name not in removed}
    return kept | {key(item): item for item in diff.changed}
