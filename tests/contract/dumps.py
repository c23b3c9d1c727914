"""Dump all rows of any store, compare dumps, and restore them."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec, node_changes
from nodetracker.db.codec import parse_json, render_json
from nodetracker.db.connection.dialect import UtcDateTime
from nodetracker.db.memory import MemoryStore
from nodetracker.db.memory.copying import copy_row
from nodetracker.db.memory.tables import Tables
from nodetracker.db.schema.tables import metadata
from tests.contract.stores import StoreMaker
from tests.statements import select_written

Row = Mapping[str, Any]
Dump = dict[str, Row]
"""Label of a row, e.g. ``guest a1 web`` -> column -> value."""

Delta = dict[str, dict[str, Any]]
"""Label of a row that differs -> its columns that do, empty when it was deleted."""

_IDS = {"id", "compute_node_id"}
_VARYING = {"clock_skew_ms"} | {
    column.name
    for table in metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, UtcDateTime)
}


class Rows:
    """Reads and restores the rows of one backend, not by way of its store."""

    def __init__(self, maker: StoreMaker, names: Mapping[str, str]) -> None:
        self._maker = maker
        self._names = names
        self._engine = None if maker.url is None else sa.create_engine(maker.url)

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()

    def save(self) -> Any:
        """Return all rows in a form of the backend's own."""
        if self._engine is None:
            return copy_row(self._tables())
        with self._engine.connect() as connection:
            return {
                table: [dict(row) for row in connection.execute(select_written(table)).mappings()]
                for table in metadata.sorted_tables
            }

    def restore(self, saved: Any) -> None:
        """Replace all rows by those of `save`."""
        if self._engine is None:
            self._memory()._tables = copy_row(saved)
            return
        with self._engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(sa.delete(table))
            for table, rows in saved.items():
                if rows:
                    connection.execute(sa.insert(table), rows)

    def dump(self) -> Dump:
        """Return all rows, labelled."""
        rows = (
            _label_memory(self._tables(), self._names)
            if self._engine is None
            else _label_sql(self.save(), self._names)
        )
        return {
            label: {name: value for name, value in row.items() if name not in _IDS}
            for label, row in rows
        }

    def _memory(self) -> MemoryStore:
        store = self._maker.open()
        assert isinstance(store, MemoryStore)
        return store

    def _tables(self) -> Tables:
        return self._memory()._tables


def compare(before: Dump, after: Dump) -> Delta:
    """Return what differs between two dumps."""
    return {
        label: {
            name: value
            for name, value in after.get(label, {}).items()
            if label not in before or before[label][name] != value
        }
        for label in sorted(before.keys() | after.keys())
        if before.get(label) != after.get(label)
    }


def without_varying(delta: Delta) -> Delta:
    """Return a delta without times, which no two stores have in common."""
    return {
        label: {name: _plain(value) for name, value in row.items() if name not in _VARYING}
        for label, row in delta.items()
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, datetime) else parse_json(render_json(value))


def _label_sql(saved: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    tables = {table.name: rows for table, rows in saved.items()}
    nodes = {row["id"]: names[row["uuid"]] for row in tables["compute_nodes"]}
    yield from ((f"node {nodes[row['id']]}", row) for row in tables["compute_nodes"])
    for kind, table, key in (("guest", "guests", "uuid"), ("device", "pci_devices", "address")):
        for row in tables[table]:
            name = names.get(row[key], row[key])
            yield f"{kind} {nodes[row['compute_node_id']]} {name}", row
    for row in tables["claims"]:
        node = nodes[row["compute_node_id"]]
        yield f"claim {names[row['uuid']]}", {**row, "node": node}
    yield from _label_rest(tables["services"], tables["warnings"], tables["history"])
    yield from ((names[row["uuid"]], row) for row in tables["migrations"])
    yield from _label_removals(tables["provider_removals"], names)


def _label_memory(tables: Tables, names: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    nodes = {record.id: names[record.uuid] for record in tables.nodes.values()}
    for record in tables.nodes.values():
        label = nodes[record.id]
        identity = {
            name: getattr(record, name)
            for name in ("uuid", "host", "generation", "epoch", "created_at", "updated_at")
        }
        row = identity | {"hypervisor_hostname": record.nodename}
        row |= codec.encode_values(record.values) | node_changes.encode_limits(
            record.values, record.generation
        )
        yield f"node {label}", row
        for guest in record.guests.values():
            yield f"guest {label} {names[guest.uuid]}", codec.encode_guest(guest)
        for device in record.devices.values():
            yield f"device {label} {device.address}", codec.encode_device(device)
    for claim in tables.claims.values():
        yield (
            f"claim {names[claim.uuid]}",
            codec.encode_claim(claim) | {"node": nodes[claim.node_id]},
        )
    yield from _label_rest(
        [_flatten(service, "incarnation") for service in tables.services.values()],
        [_flatten(record, "warning") for record in tables.warnings.values()],
        [dataclasses.asdict(entry) for entry in tables.history],
    )
    for migration in tables.migrations.values():
        yield names[migration.uuid], codec.encode_migration(migration)
    removals = map(dataclasses.asdict, tables.provider_removals.values())
    yield from _label_removals(removals, names)


def _label_removals(rows: Iterable[Row], names: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    for row in rows:
        yield f"removal {names[row['provider_uuid']]}", {**row, "workloads": [*row["workloads"]]}


def _flatten(value: Any, name: str) -> Row:
    """Return a dataclass as a row, with the fields of one of its fields."""
    row: dict[str, Any] = dataclasses.asdict(value)
    return row | row.pop(name)


def _label_rest(
    services: Iterable[Row], warnings: Iterable[Row], history: Iterable[Row]
) -> Iterator[tuple[str, Row]]:
    """Label what is identified by names; of entries of the same node by their order."""
    for row in services:
        label = f"service {row['host']} {row['binary'].removeprefix('nodetracker-')}"
        yield label, {name: value for name, value in row.items() if name != "uuid"}
    for row in warnings:
        yield f"warning {row['host']} {row['kind']} {row['nodename']} {row['item']}".rstrip(), row
    seen: Counter[str] = Counter()
    for row in sorted(history, key=lambda row: row["at"]):
        if "service" in row["diff"]:  # whose uuid no two stores have in common
            row = {**row, "diff": row["diff"] | {"service": None}}
        label = f"history {row['host']} {row['nodename']} {row['what']}"
        seen[label] += 1
        yield f"{label} {seen[label]}", row
