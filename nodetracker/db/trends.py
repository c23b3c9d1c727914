"""Read and delete ``trends``: samples of all nodes by the hour and by the day, 64 nodes a row.

A row a node would be 240,000 rows a day of 10,000 nodes. Rows are inserted and deleted, never
updated; the fleet's own row of an hour or day shows that all of its rows are stored.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.statements import delete_part
from nodetracker.model.trend import Resolution, TrendQuery, TrendSample, Values, amounts_of

_trends = tables.trends.c
_nodes = tables.compute_nodes.c
PART_NODES = 64
FLEET = -1
FLEET_KEY = "0"


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` older rows of one resolution and return how many."""
    return delete_older(connection, Resolution.HOUR, before, limit) or delete_older(
        connection, Resolution.DAY, before, limit
    )


def read_trend(connection: sa.Connection, query: TrendQuery) -> list[TrendSample]:
    resolution, node = query.resolution, query.node_id
    part, key = (FLEET, FLEET_KEY) if node is None else (node // PART_NODES, str(node))
    conditions = [_trends.seconds == resolution.seconds, _trends.part == part]
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
        TrendSample(at, amounts_of(values))
        for at, packed, since in reversed(found.all())
        if (since is None) == (node is None)
        and (since is None or at >= resolution.start_of(since))
        and (values := unpack(packed).get(key)) is not None
    ]


def read_node_hours(
    connection: sa.Connection, uuids: Sequence[str], since: datetime
) -> dict[str, list[TrendSample]]:
    wanted = sa.select(_nodes.id, _nodes.uuid, _nodes.created_at).where(_nodes.uuid.in_(uuids))
    found: dict[str, list[TrendSample]] = {}
    parts: dict[int, list[tuple[str, datetime, list[TrendSample]]]] = {}
    for node, uuid, created in connection.execute(wanted):
        hours = found[uuid] = []
        first = Resolution.HOUR.start_of(created)
        parts.setdefault(node // PART_NODES, []).append((str(node), first, hours))
    stored = (
        sa.select(_trends.part, _trends.at, _trends.samples)
        .where(
            _trends.seconds == Resolution.HOUR.seconds,
            _trends.part.in_(list(parts)),
            _trends.at >= since,
        )
        .order_by(_trends.at)
    )
    for part, at, packed in connection.execute(stored):
        samples = unpack(packed)
        for key, first, hours in parts[part]:
            if at >= first and key in samples:
                hours.append(TrendSample(at, amounts_of(samples[key])))
    return found


def list_stored(
    connection: sa.Connection, condition: "sa.ColumnElement[bool]"
) -> set[tuple[int, datetime]]:
    """Return the hours and days that are stored, each with its length in seconds."""
    lengths = [resolution.seconds for resolution in Resolution]
    query = sa.select(_trends.seconds, _trends.at).where(
        _trends.seconds.in_(lengths), _trends.part == FLEET, condition
    )
    return {(seconds, at) for seconds, at in connection.execute(query)}


def pack(samples: Mapping[str, Values]) -> bytes:
    """Return the samples of a row's nodes by their ids."""
    return zlib.compress(json.dumps(samples, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> dict[str, Values]:
    """Return what `pack` packed."""
    found: dict[str, Values] = json.loads(zlib.decompress(packed))
    return found


def delete_older(
    connection: sa.Connection, resolution: Resolution, before: datetime, limit: int
) -> int:
    condition = sa.and_(_trends.seconds == resolution.seconds, _trends.at < before)
    return delete_part(connection, tables.trends, condition, _trends.at, limit)
