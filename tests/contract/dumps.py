"""Dump all rows of a database, compare dumps, and restore them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import UtcDateTime
from nodetracker.db.schema.tables import metadata
from nodetracker.db.trends import unpack
from tests.statements import select_written

Row = Mapping[str, Any]
Dump = dict[str, Row]
"""Label of a row, e.g. ``guest a1 web`` -> column -> value."""

Saved = Mapping[sa.Table, list[dict[str, Any]]]
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
    """Reads and restores the rows of a database, not by way of its store."""

    def __init__(self, url: str, names: Mapping[str, str]) -> None:
        self._names = names
        self.engine = sa.create_engine(url)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def number_nodes_from(self, first: int) -> None:
        """Let the ids of nodes begin at one, in PostgreSQL."""
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"ALTER SEQUENCE compute_nodes_id_seq RESTART WITH {first}"))

    def save(self) -> Saved:
        """Return all rows, by table."""
        with self.engine.connect() as connection:
            return {
                table: [dict(row) for row in connection.execute(select_written(table)).mappings()]
                for table in metadata.sorted_tables
            }

    def restore(self, saved: Saved) -> None:
        """Replace all rows by those of `save`."""
        with self.engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(sa.delete(table))
            for table, rows in saved.items():
                if rows:
                    connection.execute(sa.insert(table), rows)

    def dump(self) -> Dump:
        """Return all rows, labelled."""
        return {
            label: {name: value for name, value in row.items() if name not in _IDS}
            for label, row in _label(self.save(), self._names)
        }


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


def render(delta: Delta) -> str:
    """Return a delta as text, a line for each row, without times, which vary."""
    lines = []
    for label, row in delta.items():
        plain = {name: json.loads(render_json(row[name])) for name in row.keys() - _VARYING}
        lines.append(f"{label}: {json.dumps(plain, sort_keys=True)}\n")
    return "".join(lines)


def _label(saved: Saved, names: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """Label rows; what is identified by names by these, entries of the same node by their order."""
    tables = {table.name: rows for table, rows in saved.items()}
    nodes = {row["id"]: names[row["uuid"]] for row in tables["compute_nodes"]}
    yield from ((f"node {nodes[row['id']]}", row) for row in tables["compute_nodes"])
    for kind, table, key in (("guest", "guests", "uuid"), ("device", "pci_devices", "address")):
        for row in tables[table]:
            name = names.get(row[key], row[key])
            yield f"{kind} {nodes[row['compute_node_id']]} {name}", row
    for row in tables["claims"]:
        yield f"claim {names[row['uuid']]}", {**row, "node": nodes[row["compute_node_id"]]}
    for row in tables["services"]:
        label = f"service {row['host']} {row['binary'].removeprefix('nodetracker-')}"
        yield label, {name: value for name, value in row.items() if name != "uuid"}
    for row in tables["warnings"]:
        yield f"warning {row['host']} {row['kind']} {row['nodename']} {row['item']}".rstrip(), row
    seen: Counter[str] = Counter()
    for row in sorted(tables["history"], key=lambda row: row["at"]):
        if "service" in row["diff"]:  # whose uuid varies
            row = {**row, "diff": row["diff"] | {"service": None}}
        what = row["what"]
        if "event" in row["diff"]:
            what = f"{row['kind']} {row['diff']['event']}"
        label = f"history {row['host']} {row['nodename']} {what}"
        seen[label] += 1
        yield f"{label} {seen[label]}", row
    yield from ((names[row["uuid"]], row) for row in tables["migrations"])
    yield from ((f"call {row['host']}", row) for row in tables["host_calls"])
    yield from ((f"token {row['created_by']}", row) for row in tables["join_tokens"])
    yield from ((f"credential {row['host']}", row) for row in tables["agent_credentials"])
    trends: dict[tuple[int, str], Row] = {}
    for row in tables["trends"]:  # nodes are in one or two of them: ids go on from test to test
        key = row["seconds"], "fleet" if row["part"] < 0 else "nodes"
        known = trends.setdefault(key, {**row, "part": None, "samples": []})
        samples = map(list, unpack(row["samples"]).values())
        known["samples"] = sorted([*known["samples"], *samples], key=str)
    yield from ((f"trend {seconds} {name}", row) for (seconds, name), row in trends.items())
    for row in tables["provider_removals"]:
        yield f"removal {names[row['provider_uuid']]}", {**row, "workloads": [*row["workloads"]]}
