"""Sample the amounts of all nodes by the hour, and average them by the day."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.trends import average_samples, sample_node, sum_samples
from nodetracker.db.columns import is_damaged
from nodetracker.db.connection.dialect import read_time
from nodetracker.db.schema import tables
from nodetracker.db.trends import (
    FLEET,
    FLEET_KEY,
    PART_NODES,
    delete_older,
    list_stored,
    pack,
    split_row,
    unpack_row,
)
from nodetracker.model.fleet import OVERVIEW_COLUMNS
from nodetracker.model.trend import Step, Values

_trends = tables.trends.c
_nodes = tables.compute_nodes.c

Row = dict[str, Any]


def list_missing_rows(connection: sa.Connection) -> list[Row]:
    """Return the rows that are not stored yet: of this hour, and of days that are over.

    A day's are the means of its hours, as far as these were sampled. Nothing is dated
    before the first node was created.
    """
    now = read_time(connection)
    hour = Step.HOUR.start_of(now)
    stored = list_stored(connection, _trends.at >= hour - Step.HOUR.kept)
    rows: list[Row] = []
    if (Step.HOUR.seconds, hour) not in stored and (stored or _is_older(connection, hour)):
        rows += _sample_hour(connection, hour)
    days = {Step.DAY.start_of(at) for seconds, at in stored if seconds == Step.HOUR.seconds}
    today = Step.DAY.start_of(now)
    for day in sorted(days):
        if day < today and (Step.DAY.seconds, day) not in stored:
            rows += _average_day(connection, day)
    return rows


def insert_rows(connection: sa.Connection, rows: Sequence[Row]) -> None:
    """Insert rows of `list_missing_rows`, but for those that another process has inserted since."""
    stored = list_stored(connection, _trends.at.in_({row["at"] for row in rows}))
    missing = [row for row in rows if (row["seconds"], row["at"]) not in stored]
    if missing:
        connection.execute(sa.insert(tables.trends), missing)


def purge_aged(connection: sa.Connection, limit: int) -> int:
    """Delete at most `limit` rows of each step that are past its time; return how many."""
    now = read_time(connection)
    return sum(delete_older(connection, found, now - found.kept, limit) for found in Step)


def _is_older(connection: sa.Connection, hour: datetime) -> bool:
    """Return whether the first of the nodes, if there are any, was created before an hour."""
    first: datetime | None = connection.scalar(sa.select(sa.func.min(_nodes.created_at)))
    return first is None or first <= hour


def _sample_hour(connection: sa.Connection, hour: datetime) -> Iterator[Row]:
    unused = {"overhead", "running_vms", "total_containers", "disk_available_least"}
    columns = set(OVERVIEW_COLUMNS) - unused
    query = sa.select(_nodes.id, *(_nodes[name] for name in sorted(columns))).order_by(_nodes.id)
    parts: dict[int, dict[int, Values]] = {}
    for row in connection.execute(query):
        if is_damaged(row):
            continue
        node: Any = row
        part = parts.setdefault(node.id // PART_NODES, {})
        part[node.id] = sample_node(node)
    nodes = [values for part in parts.values() for values in part.values()]
    parts[FLEET] = {FLEET_KEY: sum_samples(nodes)} if nodes else {}
    return _make_rows(Step.HOUR, hour, parts)


def _average_day(connection: sa.Connection, day: datetime) -> Iterator[Row]:
    query = (
        sa.select(_trends.part, _trends.samples)
        .where(
            _trends.seconds == Step.HOUR.seconds,
            _trends.at >= day,
            _trends.at < day + timedelta(days=1),
        )
        .order_by(_trends.part, _trends.at)
    )
    hours: dict[int, list[bytes]] = {}
    for part, packed in connection.execute(query):
        hours.setdefault(part, []).append(packed)
    return _make_rows(Step.DAY, day, {part: _average_part(found) for part, found in hours.items()})


def _average_part(hours: Sequence[bytes]) -> dict[int, Values]:
    rows = [unpack_row(packed) for packed in hours]
    nodes = rows[0][0]
    if all(found == nodes for found, _ in rows):  # all values at once take half of the time
        return split_row(nodes, average_samples(values for _, values in rows))
    by_node: dict[int, list[Values]] = {}
    for row in rows:
        for node, values in split_row(*row).items():
            by_node.setdefault(node, []).append(values)
    return {node: average_samples(found) for node, found in by_node.items()}


def _make_rows(
    step: Step, at: datetime, parts: Mapping[int, Mapping[int, Values]]
) -> Iterator[Row]:
    for part, samples in parts.items():
        key = {"seconds": step.seconds, "at": at, "part": part}
        yield key | {"samples": pack(samples)}
