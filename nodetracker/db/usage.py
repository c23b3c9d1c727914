"""Sum the amounts of workloads by project: of active claims, and of guests without one."""

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import UsageSum

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_AMOUNTS = ("vcpu_milli", "pcpus", "memory_mb", "disk_mb")


def sum_usage(
    connection: sa.Connection, host: str | None, project_id: str | None
) -> list[UsageSum]:
    """See `Store.sum_usage`."""
    rows = sa.union_all(_select_claims(host), _select_guests(host)).subquery("workload")
    group = (rows.c.project_id, rows.c.kind, rows.c.is_claimed)
    query = sa.select(
        *group,
        sa.func.count(rows.c.uuid.distinct()),
        *(sa.func.sum(rows.c[name]) for name in _AMOUNTS),
    ).group_by(*group)
    if project_id is not None:
        query = query.where(rows.c.project_id == project_id)
    found = [
        UsageSum(project, WorkloadKind(kind), bool(is_claimed), *map(int, amounts))
        for project, kind, is_claimed, *amounts in connection.execute(query)
    ]
    return sorted(found, key=lambda item: (item.project_id, item.kind, not item.is_claimed))


def _select_claims(host: str | None) -> "sa.Select[tuple[object, ...]]":
    # Its guest may know the project that a claim lacks.
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    own = sa.func.nullif(_claims.project_id, "")
    query = (
        sa.select(
            sa.func.coalesce(own, _guests.project_id, "").label("project_id"),
            _claims.workload_kind.label("kind"),
            sa.literal(1).label("is_claimed"),
            _claims.workload_uuid.label("uuid"),
            *(_claims[name] for name in _AMOUNTS),
        )
        .select_from(tables.claims.outerjoin(tables.guests, is_guest))
        .where(_claims.state.in_([state.value for state in ACTIVE_STATES]))
    )
    return query if host is None else query.where(_is_on(_claims.compute_node_id, host))


def _select_guests(host: str | None) -> "sa.Select[tuple[object, ...]]":
    query = sa.select(
        _guests.project_id,
        _guests.kind,
        sa.literal(0).label("is_claimed"),
        _guests.uuid,
        _guests.vcpu_milli,
        sa.literal(0).label("pcpus"),
        _guests.memory_mb,
        _guests.disk_mb,
    ).where(_guests.claim_uuid.is_(None))
    return query if host is None else query.where(_is_on(_guests.compute_node_id, host))


def _is_on(node_id: "sa.ColumnElement[int]", host: str) -> "sa.ColumnElement[bool]":
    return node_id.in_(sa.select(_nodes.id).where(_nodes.host == host))
