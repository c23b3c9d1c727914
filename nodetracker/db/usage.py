"""Sum the amounts of workloads by project: of active claims, and of guests without one."""

from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import UsageSum

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c


def sum_usage(
    connection: sa.Connection, host: str | None, project_id: str | None
) -> list[UsageSum]:
    """See `Store.sum_usage`."""
    query = sa.union_all(_sum_claims(host, project_id), _sum_guests(host, project_id))
    found = [
        UsageSum(project, WorkloadKind(kind), bool(is_claimed), *map(int, amounts))
        for project, kind, is_claimed, *amounts in connection.execute(query)
    ]
    return sorted(found, key=lambda item: (item.project_id, item.kind, not item.is_claimed))


def _sum_claims(host: str | None, project_id: str | None) -> "sa.Select[tuple[Any, ...]]":
    # Its guest may know the project that a claim lacks; no other claim needs its guest.
    is_guest = sa.and_(
        _claims.project_id == "",
        _guests.claim_uuid.is_not(None),
        _guests.compute_node_id == _claims.compute_node_id,
        _guests.uuid == _claims.workload_uuid,
    )
    # Its own label, as PostgreSQL does not know an expression with parameters again.
    project = sa.func.coalesce(sa.func.nullif(_claims.project_id, ""), _guests.project_id, "")
    query = (
        sa.select(
            project.label("owner"),
            _claims.workload_kind.label("kind"),
            sa.literal(1).label("is_claimed"),
            sa.func.count(_claims.workload_uuid.distinct()).label("workloads"),
            sa.func.sum(_claims.vcpu_milli).label("vcpu_milli"),
            sa.func.sum(_claims.pcpus).label("pcpus"),
            sa.func.sum(_claims.memory_mb).label("memory_mb"),
            sa.func.sum(_claims.disk_mb).label("disk_mb"),
        )
        .select_from(tables.claims.outerjoin(tables.guests, is_guest))
        .where(_claims.state.in_([state.value for state in ACTIVE_STATES]))
        .group_by("owner", _claims.workload_kind)
    )
    if host is not None:
        query = query.where(_is_on(_claims.compute_node_id, host))
    if project_id is not None:  # the first condition is for the index
        query = query.where(_claims.project_id.in_({project_id, ""}), project == project_id)
    return query


def _sum_guests(host: str | None, project_id: str | None) -> "sa.Select[tuple[Any, ...]]":
    query = (
        sa.select(
            _guests.project_id,
            _guests.kind,
            sa.literal(0),
            sa.func.count(_guests.uuid.distinct()),
            sa.func.sum(_guests.vcpu_milli),
            sa.literal(0),
            sa.func.sum(_guests.memory_mb),
            sa.func.sum(_guests.disk_mb),
        )
        .where(_guests.claim_uuid.is_(None))
        .group_by(_guests.project_id, _guests.kind)
    )
    if host is not None:
        query = query.where(_is_on(_guests.compute_node_id, host))
    if project_id is not None:
        query = query.where(_guests.project_id == project_id)
    return query


def _is_on(node_id: "sa.ColumnElement[int]", host: str) -> "sa.ColumnElement[bool]":
    return node_id.in_(sa.select(_nodes.id).where(_nodes.host == host))
