"""Store ``host_calls``: the calls that agents without a broker take with their heartbeats."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import read_time, utc_ago, utc_now
from nodetracker.db.schema import tables
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, Credential
from nodetracker.model.service import COMPUTE_BINARY, AdminState, HostCall, HostNews

_calls = tables.host_calls.c
_credentials = tables.agent_credentials.c
_nodes = tables.compute_nodes.c
_services = tables.services.c


def create_call(
    connection: sa.Connection,
    host: str,
    method: str,
    arguments: Mapping[str, Any],
    sender: str,
    lifetime: timedelta,
) -> int:
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
    query = sa.select(_calls.answer).where(_calls.id == call_id)
    found: Mapping[str, Any] | None = connection.execute(query).scalar_one_or_none()
    return found


def take_news(connection: sa.Connection, secret_hash: str) -> tuple[Credential, HostNews] | None:
    """Return a credential and what its host's agent is to know; each call only once.

    By one statement where no call waits. None for a credential that `find_credential` has
    to decide about, or to store the use of.
    """
    owner, admin, generations, waiting = None, None, {}, []
    for kind, number, *values in connection.execute(_NEWS, {"secret_hash": secret_hash}):
        if kind == _CREDENTIAL:
            host, _, agent_id, issued_at = values
            owner = Credential(host, agent_id, issued_at, is_due=bool(number))
        elif kind == _NODE:
            generations[values[0]] = number
        elif kind == _SERVICE:
            admin = AdminState(bool(number & _DISABLED), bool(number & _MAINTENANCE))
        else:
            waiting.append(HostCall(number, *values))
    if owner is None:
        return None
    waiting.sort(key=lambda call: call.id)
    return owner, HostNews(generations, take_calls(connection, waiting), admin)


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


_CREDENTIAL, _CALL, _NODE, _SERVICE = 0, 1, 2, 3
_DISABLED, _MAINTENANCE = 1, 2


def _select_news() -> "sa.CompoundSelect[Any]":
    """Return the query for a credential that is in use, and its host's calls, nodes and service."""
    columns = (_calls.id, _calls.method, _calls.arguments, _calls.sender, _calls.expires_at)
    is_of = _credentials.secret_hash == sa.bindparam("secret_hash")
    host = sa.select(_credentials.host).where(is_of).scalar_subquery()
    is_young = _credentials.issued_at > utc_ago(int(RENEWAL_AGE.total_seconds()))

    def select(kind: int, *values: Any) -> "sa.Select[Any]":
        names = (column.name for column in columns)
        labelled = (value.label(name) for value, name in zip(values, names, strict=True))
        return sa.select(sa.literal_column(str(kind)).label("kind"), *labelled)

    return sa.union_all(
        select(_CALL, *columns).where(
            _calls.host == host, _calls.taken_at.is_(None), _calls.expires_at > utc_now()
        ),
        select(_NODE, _nodes.generation, _nodes.hypervisor_hostname, *(sa.null(),) * 3).where(
            _nodes.host == host
        ),
        select(
            _SERVICE,
            sa.case((_services.disabled, _DISABLED), else_=0)
            + sa.case((_services.maintenance, _MAINTENANCE), else_=0),
            *(sa.null(),) * 4,
        ).where(_services.host == host, _services.binary == COMPUTE_BINARY),
        select(
            _CREDENTIAL,
            sa.case((is_young, 0), else_=1),
            _credentials.host,
            sa.null(),
            _credentials.agent_id,
            _credentials.issued_at,
        ).where(
            is_of,
            _credentials.used_at > utc_ago(int(USE_INTERVAL.total_seconds())),
        ),
    )


# Built once, as thousands of agents send a heartbeat every few seconds.
_NEWS = _select_news()


def answer_call(
    connection: sa.Connection, host: str, call_id: int, answer: Mapping[str, Any]
) -> None:
    connection.execute(
        sa.update(tables.host_calls)
        .where(_calls.id == call_id, _calls.host == host, _calls.answered_at.is_(None))
        .values(answered_at=utc_now(), answer=answer)
    )
