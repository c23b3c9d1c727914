"""Write the heartbeats of services, which show that their processes are alive."""

import dataclasses
from datetime import datetime
from types import SimpleNamespace

import sqlalchemy as sa

from nodetracker.db import codec, history
from nodetracker.db.connection.dialect import (
    UtcDateTime,
    milliseconds_ahead,
    read_time,
    utc_now,
)
from nodetracker.db.schema import tables
from nodetracker.db.services import check_columns, is_held_by
from nodetracker.model.errors import FencedError
from nodetracker.model.service import AgentKey, AuditState
from nodetracker.process.clock import refuse_expired

_services = tables.services.c

MAX_REPORTS = 10**8
"""By how many heartbeats an agent may be ahead of a services row, as one that was restored."""

_AGENT = SimpleNamespace(
    **{item.name: sa.bindparam(f"agent_{item.name}") for item in dataclasses.fields(AgentKey)}
)


def report_state(
    connection: sa.Connection,
    agent: AgentKey,
    report_count: int,
    state: AuditState,
    host_time: datetime,
    is_last: bool,
    known_calls: int | None = None,
    expires_at: datetime | None = None,
) -> bool:
    """Return whether more calls were made than are known.

    Args:
        expires_at: nothing is written later, as the agent may have ended since.

    Raises:
        FencedError: another agent holds the host.
        RpcUnavailableError: it is too late.
    """
    values = {
        **{f"agent_{item.name}": getattr(agent, item.name) for item in dataclasses.fields(agent)},
        "new_count": report_count,
        "host_time": host_time,
        "state": codec.encode_audit_state(state),
    }
    check_columns("state", {"last_audit": values["state"]})
    if known_calls is not None:
        known = values | {"known_calls": known_calls}
        if connection.execute(_UNCALLED_HEARTBEAT, known).rowcount:
            return False
    statement = _LAST_HEARTBEAT if is_last else _HEARTBEAT
    if expires_at is not None:
        values["expires_at"] = expires_at
        statement = _TIMELY_HEARTBEAT
    if connection.execute(statement, values).rowcount != 1:
        if expires_at is not None:
            refuse_expired(expires_at, read_time(connection))
        raise FencedError(
            f"host {agent.host} is no longer held by agent {agent.agent_id}, epoch {agent.epoch}: "
            "another agent took it over, or its services row was deleted or renamed; "
            f"see nodetracker-manage service show {agent.host} {agent.binary}"
        )
    if is_last:
        history.insert(connection, [history.service_line(agent.host, agent.binary, "stopped")])
    return known_calls is not None


# Built once, as thousands of agents send one every few seconds.
_HEARTBEAT = (
    sa.update(tables.services)
    .where(
        is_held_by(_AGENT),
        _services.report_count < sa.bindparam("new_count"),
        _services.report_count >= sa.bindparam("new_count") - MAX_REPORTS,
    )
    .values(
        report_count=sa.bindparam("new_count"),
        last_seen_up=utc_now(),
        updated_at=utc_now(),
        clock_skew_ms=milliseconds_ahead(sa.bindparam("host_time", type_=UtcDateTime())),
        last_audit=sa.bindparam("state"),
    )
)
_TIMELY_HEARTBEAT = _HEARTBEAT.where(utc_now() <= sa.bindparam("expires_at", type_=UtcDateTime()))
_LAST_HEARTBEAT = _HEARTBEAT.values(ended_epoch=_AGENT.epoch)
_UNCALLED_HEARTBEAT = _HEARTBEAT.where(_services.calls == sa.bindparam("known_calls"))
