"""``services``: who answers for a host, and its heartbeat."""

import uuid
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.schema.types import UtcDateTime
from nodetracker.db.sql import milliseconds_ahead, utc_now
from nodetracker.errors import ConflictError, FencedError
from nodetracker.model.service import AuditState, Incarnation, ServiceRecord
from nodetracker.ports import AgentKey

_services = tables.services.c
_nodes = tables.compute_nodes.c


def select_service() -> "sa.Select[Any]":
    """Return the query of whole rows, for `codec.decode_service`."""
    return sa.select(tables.services)


def list_services(
    connection: sa.Connection, host: str | None, binary: str | None
) -> list[ServiceRecord]:
    """See `Store.list_services`."""
    query = select_service()
    if host is not None:
        query = query.where(_services.host == host)
    if binary is not None:
        query = query.where(_services.binary == binary)
    records = [codec.decode_service(row) for row in connection.execute(query).mappings()]
    return sorted(records, key=lambda record: (record.host, record.binary))


def register_agent(
    connection: sa.Connection,
    host: str,
    binary: str,
    topic: str,
    version: str,
    incarnation: Incarnation,
) -> ServiceRecord:
    """See `Store.register_agent`. The services row comes first, then the nodes in id order."""
    one = sa.and_(_services.host == host, _services.binary == binary)
    # Rows may carry a newer epoch than a services row that was deleted and made again.
    highest = sa.select(sa.func.max(_nodes.epoch)).where(_nodes.host == host).scalar_subquery()
    node_epoch: int = connection.execute(sa.select(highest)).scalar() or 0
    seen = connection.execute(sa.select(_services.agent_id, _services.epoch).where(one)).first()
    epoch = max(node_epoch, 0 if seen is None else seen.epoch) + 1
    columns = codec.encode_incarnation(incarnation) | {
        "topic": topic,
        "version": version,
        "epoch": epoch,
        "updated_at": utc_now(),
    }
    if seen is None:
        connection.execute(
            sa.insert(tables.services).values(
                uuid=str(uuid.uuid4()),
                host=host,
                binary=binary,
                report_count=0,
                disabled=False,
                maintenance=False,
                forced_down=False,
                last_audit={},
                created_at=utc_now(),
                **columns,
            )
        )
    else:
        taken = connection.execute(
            sa.update(tables.services)
            .where(one, _services.agent_id == seen.agent_id, _services.epoch == seen.epoch)
            .values(columns)
        )
        if taken.rowcount != 1:
            raise ConflictError(f"another agent took over host {host} at the same moment")
    ids = list(
        connection.execute(
            sa.select(_nodes.id).where(_nodes.host == host).order_by(_nodes.id).with_for_update()
        ).scalars()
    )
    if ids:
        connection.execute(
            sa.update(tables.compute_nodes).where(_nodes.host == host).values(epoch=epoch)
        )
    return codec.decode_service(connection.execute(select_service().where(one)).mappings().one())


def beat(
    connection: sa.Connection,
    agent: AgentKey,
    report_count: int,
    state: AuditState,
    host_time: datetime,
) -> None:
    """See `Store.beat`.

    Args:
        host_time: the agent's own clock, to be compared with the database's.
    """
    written = connection.execute(
        sa.update(tables.services)
        .where(
            _services.host == agent.host,
            _services.binary == agent.binary,
            _services.agent_id == agent.agent_id,
            _services.epoch == agent.epoch,
            _services.report_count < report_count,
        )
        .values(
            report_count=report_count,
            last_seen_up=utc_now(),
            updated_at=utc_now(),
            clock_skew_ms=milliseconds_ahead(sa.literal(host_time, UtcDateTime())),
            last_audit=codec.encode_audit_state(state),
        )
    )
    if written.rowcount != 1:
        raise FencedError(
            f"host {agent.host} is no longer held by agent {agent.agent_id}, epoch {agent.epoch}"
        )
