"""Read and write ``host_tolerances``: which losses of hosts the fleet survives."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db.columns import is_damaged
from nodetracker.db.connection.dialect import read_time
from nodetracker.db.schema import tables
from nodetracker.db.statements import matches
from nodetracker.model.serializer import decode, encode
from nodetracker.model.tolerance import HostTolerance, LossPlan, Verdict

_tolerances = tables.host_tolerances.c
_ANSWER = ("host", "verdict", "lost", "computed_at", "checked_at", "expires_at")
_AT_ONCE = 1000
"""Hosts that one statement names."""


def list_tolerances(
    connection: sa.Connection, host: str | None = None, with_plans: bool = False
) -> list[HostTolerance]:
    columns = [*list_columns(), *([_tolerances.plan] if with_plans else [])]
    query = sa.select(*columns).where(*matches((_tolerances.host, host)))
    found = (decode_answer(row) for row in connection.execute(query).mappings())
    return sorted((item for item in found if item is not None), key=lambda item: item.host)


def list_columns(prefix: str = "") -> "list[sa.ColumnElement[Any]]":
    """Return the columns of an answer without its plan, with labels for `decode_answer`."""
    return [_tolerances[name].label(prefix + name) for name in _ANSWER]


def decode_answer(row: sa.RowMapping, prefix: str = "") -> HostTolerance | None:
    """Return the answer of a row, None where there is none or it is damaged."""
    values = {name: row[prefix + name] for name in _ANSWER}
    plan = row.get("plan")
    if values["host"] is None or is_damaged([*values.values(), plan]):
        return None
    verdict = Verdict(values.pop("verdict"))
    stored = None if plan is None else decode(LossPlan, plan)
    return HostTolerance(**values, verdict=verdict, plan=stored)


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
