"""Read and write ``host_tolerances``: which losses of hosts the fleet survives."""

from collections.abc import Collection
from datetime import timedelta

import sqlalchemy as sa

from nodetracker.db.columns import is_damaged
from nodetracker.db.connection.dialect import read_time
from nodetracker.db.schema import tables
from nodetracker.db.statements import matches
from nodetracker.model.serializer import decode, encode
from nodetracker.model.tolerance import HostTolerance, LossPlan, Verdict

_tolerances = tables.host_tolerances.c
_ANSWER = (
    _tolerances.host,
    _tolerances.verdict,
    _tolerances.lost,
    _tolerances.computed_at,
    _tolerances.checked_at,
    _tolerances.expires_at,
)
_AT_ONCE = 1000
"""Hosts that one statement names."""


def list_tolerances(
    connection: sa.Connection, host: str | None = None, with_plans: bool = False
) -> list[HostTolerance]:
    columns = [*_ANSWER, *([_tolerances.plan] if with_plans else [])]
    query = sa.select(*columns).where(*matches((_tolerances.host, host)))
    found = [
        HostTolerance(
            row["host"],
            Verdict(row["verdict"]),
            row["lost"],
            decode(LossPlan, row["plan"]) if with_plans else None,
            row["computed_at"],
            row["checked_at"],
            row["expires_at"],
        )
        for row in connection.execute(query).mappings()
        if not is_damaged(row.values())
    ]
    return sorted(found, key=lambda item: item.host)


def save_tolerances(
    connection: sa.Connection,
    answers: Collection[HostTolerance],
    gone: Collection[str],
    lifetime_seconds: int,
) -> None:
    now = read_time(connection)
    times = {"checked_at": now, "expires_at": now + timedelta(seconds=lifetime_seconds)}
    replaced = sorted({*gone, *(item.host for item in answers)})
    for first in range(0, len(replaced), _AT_ONCE):
        hosts = replaced[first : first + _AT_ONCE]
        connection.execute(sa.delete(tables.host_tolerances).where(_tolerances.host.in_(hosts)))
    rows = [
        {
            "host": item.host,
            "verdict": item.verdict.value,
            "lost": item.lost,
            "plan": encode(item.plan),
            "computed_at": item.computed_at or now,
            **times,
        }
        for item in answers
    ]
    if rows:
        connection.execute(sa.insert(tables.host_tolerances), rows)
    connection.execute(sa.update(tables.host_tolerances).values(**times))
