"""Store ``host_calls``: the calls that agents without a broker take with their heartbeats."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.schema import tables
from nodetracker.model.service import HostCall, HostNews

_calls = tables.host_calls.c
_nodes = tables.compute_nodes.c


def create_call(
    connection: sa.Connection,
    host: str,
    method: str,
    arguments: Mapping[str, Any],
    sender: str,
    lifetime: timedelta,
) -> int:
    """See `CallStore.create_call`."""
    now = read_time(connection)
    # By their keys: a range would lock the gap into which others insert.
    expired = connection.execute(sa.select(_calls.id).where(_calls.expires_at <= now)).scalars()
    if ids := list(expired):
        connection.execute(sa.delete(tables.host_calls).where(_calls.id.in_(ids)))
    inserted = connection.execute(
        sa.insert(tables.host_calls).values(
            host=host, method=method, arguments=arguments, sender=sender,
            created_at=now, expires_at=now + lifetime,
        )
    ).inserted_primary_key  # fmt: skip
    assert inserted is not None
    return int(inserted[0])


def find_answer(connection: sa.Connection, call_id: int) -> Mapping[str, Any] | None:
    """See `CallStore.find_answer`."""
    query = sa.select(_calls.answer).where(_calls.id == call_id)
    found: Mapping[str, Any] | None = connection.execute(query).scalar_one_or_none()
    return found


def load_news(connection: sa.Connection, host: str) -> HostNews:
    """Return the generations of a host's nodes and the calls that wait, by one statement."""
    names = ("method", "arguments", "sender", "expires_at")
    waiting = sa.select(_calls.id, *(_calls[name] for name in names)).where(
        _calls.host == host, _calls.taken_at.is_(None), _calls.expires_at > utc_now()
    )
    nulls = (sa.null().label(name) for name in names[1:])
    nodes = sa.select(_nodes.generation, _nodes.hypervisor_hostname, *nulls).where(
        _nodes.host == host
    )
    generations, calls = {}, []
    for row in connection.execute(sa.union_all(waiting, nodes)):
        if row.expires_at is None:
            generations[row.method] = row.id
        else:
            calls.append(HostCall(*row))
    return HostNews(generations, tuple(sorted(calls, key=lambda call: call.id)))


def take_calls(connection: sa.Connection, calls: Sequence[HostCall]) -> tuple[HostCall, ...]:
    """Mark calls as taken; return those that no other answer has."""
    return tuple(
        call
        for call in calls
        if connection.execute(
            sa.update(tables.host_calls)
            .where(_calls.id == call.id, _calls.taken_at.is_(None))
            .values(taken_at=utc_now())
        ).rowcount
    )


def answer_call(
    connection: sa.Connection, host: str, call_id: int, answer: Mapping[str, Any]
) -> None:
    """See `AgentStore.answer_call`."""
    connection.execute(
        sa.update(tables.host_calls)
        .where(_calls.id == call_id, _calls.host == host, _calls.answered_at.is_(None))
        .values(answered_at=utc_now(), answer=answer)
    )
