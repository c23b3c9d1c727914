"""Read and delete ``trends``: samples of all nodes by the hour and by the day, 64 nodes a row.

A row a node would be 240,000 rows a day of 10,000 nodes. Rows are inserted and deleted, never
updated; the fleet's own row of an hour or day shows that all of its rows are stored.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.statements import count_rows, delete_part
from nodetracker.model.trend import (
    TREND_RESOURCES,
    Step,
    TrendQuery,
    TrendSample,
    Values,
)

_trends = tables.trends.c
_nodes = tables.compute_nodes.c
PART_NODES = 64
FLEET = -1
FLEET_KEY = 0
_WIDTH = 1 + 4 * len(TREND_RESOURCES)
"""Values of a sample, integers of 64 bits."""

_UNKNOWN = -(2**63)
_LARGEST = 2**63 - 1
_MAX_BYTES = 8 * PART_NODES * (1 + _WIDTH)


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` older rows of one step and return how many."""
    return delete_older(connection, Step.HOUR, before, limit) or delete_older(
        connection, Step.DAY, before, limit
    )


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete."""
    return sum(
        count_rows(connection, tables.trends, _is_old(step, before))
        for step in (Step.HOUR, Step.DAY)
    )


def read_trend(connection: sa.Connection, query: TrendQuery) -> list[TrendSample]:
    step, node = query.step, query.node_id
    part, key = (FLEET, FLEET_KEY) if node is None else (node // PART_NODES, node)
    conditions = [_trends.seconds == step.seconds, _trends.part == part]
    if query.since is not None:
        conditions.append(_trends.at >= query.since)
    if query.until is not None:
        conditions.append(_trends.at <= query.until)
    # SQLite gives the id of a node that was deleted to the next one.
    created = sa.select(_nodes.created_at).where(_nodes.id == node).scalar_subquery()
    found = connection.execute(
        sa.select(_trends.at, _trends.samples, sa.null() if node is None else created)
        .where(*conditions)
        .order_by(_trends.at.desc())
        .limit(query.limit)
    )
    return [
        TrendSample.of(at, values)
        for at, packed, since in reversed(found.all())
        if (since is None) == (node is None)
        and (since is None or at >= step.start_of(since))
        and (values := unpack(packed).get(key)) is not None
    ]


def read_node_hours(
    connection: sa.Connection, uuids: Sequence[str], since: datetime
) -> dict[str, list[TrendSample]]:
    wanted = sa.select(_nodes.id, _nodes.uuid, _nodes.created_at).where(_nodes.uuid.in_(uuids))
    found: dict[str, list[TrendSample]] = {}
    parts: dict[int, list[tuple[int, datetime, list[TrendSample]]]] = {}
    for node, uuid, created in connection.execute(wanted):
        hours = found[uuid] = []
        first = Step.HOUR.start_of(created)
        parts.setdefault(node // PART_NODES, []).append((node, first, hours))
    stored = (
        sa.select(_trends.part, _trends.at, _trends.samples)
        .where(
            _trends.seconds == Step.HOUR.seconds,
            _trends.part.in_(list(parts)),
            _trends.at >= since,
        )
        .order_by(_trends.at)
    )
    for part, at, packed in connection.execute(stored):
        samples = unpack(packed)
        for key, first, hours in parts[part]:
            if at >= first and key in samples:
                hours.append(TrendSample.of(at, samples[key]))
    return found


def list_stored(
    connection: sa.Connection, condition: "sa.ColumnElement[bool]"
) -> set[tuple[int, datetime]]:
    """Return the hours and days that are stored, each with its length in seconds."""
    lengths = [step.seconds for step in Step]
    query = sa.select(_trends.seconds, _trends.at).where(
        _trends.seconds.in_(lengths), _trends.part == FLEET, condition
    )
    return {(seconds, at) for seconds, at in connection.execute(query)}


def pack(samples: Mapping[int, Values]) -> bytes:
    """Return the samples of a row's nodes by their ids.

    Integers are read five times as fast as JSON: a day of 10,000 nodes has three million.

    >>> unpack(pack({7: [1, *[2, None] * 6]})) == {7: [1, *[2, None] * 6]}
    True
    """
    values = [
        _UNKNOWN if value is None else max(-_LARGEST, min(value, _LARGEST))
        for found in samples.values()
        for value in found
    ]
    numbers = (*samples, *values)
    return zlib.compress(struct.pack(f"<{len(numbers)}q", *numbers), 1)


def unpack(packed: bytes) -> dict[int, Values]:
    """Return what `pack` packed."""
    return split_row(*unpack_row(packed))


def unpack_row(packed: bytes) -> tuple[Sequence[int], Values]:
    """Return the ids of a row's nodes, and the values of all of them, one after the other.

    Of a row that `pack` has not written, these are none.
    """
    try:
        data = zlib.decompressobj().decompress(packed, _MAX_BYTES)
        numbers: Any = struct.unpack(f"<{len(data) // 8}q", data)
    except (zlib.error, struct.error, TypeError):
        return (), ()
    count, rest = divmod(len(numbers), 1 + _WIDTH)
    if rest:
        return (), ()
    nodes, values = numbers[:count], numbers[count:]
    if _UNKNOWN in values:
        values = [None if value == _UNKNOWN else value for value in values]
    return nodes, values


def split_row(nodes: Sequence[int], values: Values) -> dict[int, Values]:
    """Return the values of a row by its nodes' ids."""
    return {node: values[place * _WIDTH : (place + 1) * _WIDTH] for place, node in enumerate(nodes)}


def delete_older(connection: sa.Connection, step: Step, before: datetime, limit: int) -> int:
    return delete_part(connection, tables.trends, _is_old(step, before), _trends.at, limit)


def _is_old(step: Step, before: datetime) -> "sa.ColumnElement[bool]":
    return sa.and_(_trends.seconds == step.seconds, _trends.at < before)
