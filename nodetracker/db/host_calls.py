"""Store ``host_calls``: the calls that wait for agents, and what else agents read of others."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.connection.dialect import read_time, utc_ago, utc_now
from nodetracker.db.schema import tables
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, Credential
from nodetracker.model.errors import BusyError, NotFoundError, RequestError
from nodetracker.model.service import (
    COMPUTE_BINARY,
    UNREAD_NEWS,
    AdminState,
    AgentKey,
    HostCall,
    HostNews,
)
from nodetracker.model.shapes import LARGEST

_calls = tables.host_calls.c
_credentials = tables.agent_credentials.c
_nodes = tables.compute_nodes.c
_services = tables.services.c

MAX_CALLS, MAX_ARGUMENTS = 100, 4096
"""Limits: calls of a host that have not expired, and characters of a call's arguments."""

_DELETED_AT_ONCE = 500


def create_call(
    connection: sa.Connection,
    host: str,
    method: str,
    arguments: Mapping[str, Any],
    sender: str,
    lifetime: timedelta,
) -> int:
    """Count the call first: heartbeats through conductors lock the service before its calls."""
    counted = connection.execute(
        sa.update(tables.services)
        .where(_services.host == host, _services.binary == COMPUTE_BINARY)
        .values(calls=tables.next_number(_services.calls))
    )
    if not counted.rowcount:
        raise NotFoundError(f"no such host: {host}")
    if len(codec.render_json(arguments)) > MAX_ARGUMENTS:
        raise RequestError("arguments", f"more than {MAX_ARGUMENTS} characters")
    now = read_time(connection)
    # By their keys: a range would lock the gap into which others insert.
    expired = sa.select(_calls.id).where(_calls.expires_at <= now).limit(_DELETED_AT_ONCE)
    if ids := connection.execute(expired).scalars().all():
        connection.execute(sa.delete(tables.host_calls).where(_calls.id.in_(ids)))
    own = sa.select(sa.func.count()).where(_calls.host == host, _calls.expires_at > now)
    if connection.execute(own).scalar_one() >= MAX_CALLS:
        raise BusyError(f"host {host} has {MAX_CALLS} calls already; try again when they expire")
    inserted = connection.execute(
        sa.insert(tables.host_calls).values(
            host=host, method=method, arguments=arguments, sender=sender,
            created_at=now, expires_at=now + lifetime,
        )
    ).inserted_primary_key  # fmt: skip
    assert inserted is not None
    return int(inserted[0])


def find_answer(connection: sa.Connection, host: str, call_id: int) -> Mapping[str, Any] | None:
    query = sa.select(_calls.answer).where(_calls.id == call_id, _calls.host == host)
    found: Mapping[str, Any] | None = connection.execute(query).scalar_one_or_none()
    return found


def read_joined_news(
    connection: sa.Connection, secret_hash: str
) -> tuple[Credential | None, HostNews]:
    """Return a credential and what its host's agent is to know, as `read_news` does.

    None for a credential that `find_credential` has to decide about, or to store the use of.
    """
    return _read_news(connection.execute(_JOINED_NEWS, {"secret_hash": secret_hash}))


def read_news(connection: sa.Connection, agent: AgentKey) -> HostNews:
    """Return what an agent is to know, by one statement; `take_calls` is for the calls."""
    key = {"host": agent.host, "agent_id": agent.agent_id, "epoch": agent.epoch}
    news = _read_news(connection.execute(_NEWS, key))[1]
    return news if news.is_read else UNREAD_NEWS  # another agent holds the host


def _read_news(rows: Iterable[Sequence[Any]]) -> tuple[Credential | None, HostNews]:
    owner, admin, count, generations, waiting = None, None, UNREAD_NEWS.call_count, {}, []
    for kind, number, *values in rows:
        if kind == _CREDENTIAL:
            host, _, agent_id, issued_at = values
            owner = Credential(host, agent_id, issued_at, is_due=bool(number))
        elif kind == _NODE:
            generations[values[0]] = number
        elif kind == _SERVICE:
            count, state = divmod(number, _STATES)
            admin = AdminState(*(bool(state & flag) for flag in _FLAGS))
        else:
            waiting.append(HostCall(number, *values))
    calls = tuple(sorted(waiting, key=lambda call: call.id))
    return owner, HostNews(generations, calls, admin, count)


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
_FLAGS = (1, 2, 4)
"""Of a service that is disabled, in maintenance and spare, as `AdminState` has them."""

_STATES = 8
"""Number of states of a service; it is counted below the number of calls."""

_COLUMNS = (_calls.id, _calls.method, _calls.arguments, _calls.sender, _calls.expires_at)


def _select(kind: int, *values: Any) -> "sa.Select[Any]":
    names = (column.name for column in _COLUMNS)
    labelled = (value.label(name) for value, name in zip(values, names, strict=True))
    return sa.select(sa.literal_column(str(kind)).label("kind"), *labelled)


def _select_news(host: Any, *is_service: "sa.ColumnElement[bool]") -> "list[sa.Select[Any]]":
    """Return the queries for the calls, nodes and service of a host.

    Args:
        is_service: further conditions of the service.
    """
    is_count = _services.calls.between(0, LARGEST)
    state: sa.ColumnElement[Any] = sa.case((is_count, _services.calls * _STATES), else_=0)
    decided = (_services.disabled, _services.maintenance, _services.spare)
    for column, flag in zip(decided, _FLAGS, strict=True):
        state += sa.case((column, flag), else_=0)
    return [
        _select(_CALL, *_COLUMNS).where(
            _calls.host == host, _calls.taken_at.is_(None), _calls.expires_at > utc_now()
        ),
        _select(_NODE, _nodes.generation, _nodes.hypervisor_hostname, *(sa.null(),) * 3).where(
            _nodes.host == host
        ),
        _select(_SERVICE, state, *(sa.null(),) * 4).where(
            _services.host == host, _services.binary == COMPUTE_BINARY, *is_service
        ),
    ]


def _select_joined_news() -> "sa.CompoundSelect[Any]":
    """Return the query for a credential that is in use, and the news of its host."""
    is_of = _credentials.secret_hash == sa.bindparam("secret_hash")
    is_young = _credentials.issued_at > utc_ago(int(RENEWAL_AGE.total_seconds()))
    credential = _select(
        _CREDENTIAL,
        sa.case((is_young, 0), else_=1),
        _credentials.host,
        sa.null(),
        _credentials.agent_id,
        _credentials.issued_at,
    ).where(is_of, _credentials.used_at > utc_ago(int(USE_INTERVAL.total_seconds())))
    host = sa.select(_credentials.host).where(is_of).scalar_subquery()
    return sa.union_all(*_select_news(host), credential)


# Built once, as thousands of agents send a heartbeat every few seconds.
_JOINED_NEWS = _select_joined_news()
_NEWS = sa.union_all(
    *_select_news(
        sa.bindparam("host"),
        _services.agent_id == sa.bindparam("agent_id"),
        _services.epoch == sa.bindparam("epoch"),
    )
)


def answer_call(
    connection: sa.Connection, host: str, call_id: int, answer: Mapping[str, Any]
) -> None:
    connection.execute(
        sa.update(tables.host_calls)
        .where(_calls.id == call_id, _calls.host == host, _calls.answered_at.is_(None))
        .values(answered_at=utc_now(), answer=answer)
    )


def check_privileges(connection: sa.Connection) -> None:
    """Select and update as an agent that takes and answers calls, but no row."""
    nothing = {_calls.taken_at: None, _calls.answered_at: None, _calls.answer: None}
    update = sa.update(tables.host_calls).where(sa.false()).values(nothing)
    connection.execute(sa.select(_calls.id).where(sa.false()))
    connection.execute(update)
