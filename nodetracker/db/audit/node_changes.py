"""Apply the changes of an audit: lock the rows, decide, write.

Locks are taken in a fixed order: the services row, then the nodes by id. A
takeover uses the same order.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.accounting.liveness import is_service_up
from nodetracker.db import checks, codec
from nodetracker.db.audit import decisions
from nodetracker.db.audit.decisions import LockedRow
from nodetracker.db.audit.node_writer import NodeWriter
from nodetracker.db.checks import Holder
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.db.services import lock_service, select_service
from nodetracker.model.change import NodeChange
from nodetracker.ports import AgentKey, ApplyResult

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_services = tables.services.c


def apply_changes(
    connection: sa.Connection,
    agent: AgentKey,
    changes: Sequence[NodeChange],
    service_down_time: int,
) -> ApplyResult:
    """See `Store.apply_changes`."""
    ends = _find_ends(connection, changes)
    now, rows = _lock(connection, agent, changes, ends.values())
    foreign = decisions.list_foreign_hosts(agent, changes, rows)
    hosts_up = _find_hosts_up(connection, foreign, agent.binary, now, service_down_time)
    decision = decisions.decide(agent, changes, rows, hosts_up, ends)
    return NodeWriter(connection, agent, now).apply(decision)


def _lock(
    connection: sa.Connection,
    agent: AgentKey,
    changes: Sequence[NodeChange],
    ends: Collection[int],
) -> tuple[datetime, list[LockedRow]]:
    """Lock every row that the changes name, and check that the agent is not fenced.

    Updates lock their rows, so no takeover can raise their epoch meanwhile. A
    creation has no row yet, so it locks the services row first, as a takeover does.
    """
    ids = {change.record.id for change in changes if change.record is not None} | set(ends)
    new = [change for change in changes if change.record is None]
    now: datetime | None = None
    if new:
        now = lock_service(connection, agent)
        ids.update(_find_existing(connection, agent.host, new))
    rows: list[LockedRow] = []
    if ids:
        mine = sa.and_(_services.host == agent.host, _services.binary == agent.binary)
        for row in connection.execute(
            sa.select(
                _nodes.id,
                _nodes.uuid,
                _nodes.host,
                _nodes.hypervisor_hostname,
                _nodes.generation,
                _nodes.epoch,
                _nodes.created_at,
                _nodes.updated_at,
                utc_now().label("now"),
                sa.select(_services.agent_id).where(mine).scalar_subquery().label("agent_id"),
                sa.select(_services.epoch).where(mine).scalar_subquery().label("agent_epoch"),
                sa.select(_services.uuid).where(mine).scalar_subquery().label("service_uuid"),
            )
            .where(_nodes.id.in_(sorted(ids)))
            .order_by(_nodes.id)
            .with_for_update()
        ):
            if now is None:
                holder = None
                if row.agent_id is not None:
                    holder = Holder(row.agent_id, row.agent_epoch, row.service_uuid)
                checks.check_agent(agent, holder)
                now = row.now
            rows.append(LockedRow(*row[:8]))
    if now is None:  # all rows are gone: nothing to write, but the agent may be fenced
        now = lock_service(connection, agent)
    return now, rows


def _find_ends(connection: sa.Connection, changes: Sequence[NodeChange]) -> Mapping[str, int]:
    """Return claim -> node id, which never changes, of both ends of the moves that are written."""
    uuids = decisions.list_move_claims(changes)
    if not uuids:
        return {}
    found = connection.execute(
        sa.select(_claims.uuid, _claims.compute_node_id).where(_claims.uuid.in_(sorted(uuids)))
    )
    return {row.uuid: row.compute_node_id for row in found}


def _find_existing(connection: sa.Connection, host: str, new: Sequence[NodeChange]) -> list[int]:
    """Return ids of rows that creations may collide with; they are read again under the lock."""
    nodenames = [change.nodename for change in new]
    uuids = [change.uuid for change in new]
    found = connection.execute(
        sa.union(
            sa.select(_nodes.id).where(
                _nodes.host == host, _nodes.hypervisor_hostname.in_(nodenames)
            ),
            sa.select(_nodes.id).where(_nodes.uuid.in_(uuids)),
        )
    )
    return list(found.scalars())


def _find_hosts_up(
    connection: sa.Connection,
    hosts: Sequence[str],
    binary: str,
    now: datetime,
    service_down_time: int,
) -> frozenset[str]:
    if not hosts:
        return frozenset()
    services = map(
        codec.decode_service,
        connection.execute(
            select_service().where(_services.host.in_(hosts), _services.binary == binary)
        ).mappings(),
    )
    return frozenset(
        service.host for service in services if is_service_up(service, now, service_down_time)
    )
