"""Workloads that hold claims on several nodes though nothing ties these."""

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES, SplitBrain
from nodetracker.model.migration import OPEN

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_migrations = tables.migrations.c


def list_split_brains(connection: sa.Connection, host: str) -> list[SplitBrain]:
    """See `Store.list_split_brains`."""
    other, place = tables.claims.alias("other_claims"), tables.compute_nodes.alias("other_nodes")
    active = [state.value for state in ACTIVE_STATES]
    both = [_claims.uuid, other.c.uuid]
    is_tied = sa.exists().where(
        _migrations.workload_uuid == _claims.workload_uuid,
        _migrations.status.in_([status.value for status in OPEN]),
        _migrations.source_claim.in_(both),
        _migrations.dest_claim.in_(both),
    )
    rows = connection.execute(
        sa.select(
            _nodes.hypervisor_hostname,
            _claims.workload_uuid,
            place.c.host,
            place.c.hypervisor_hostname,
        )
        .select_from(tables.compute_nodes)
        .join(tables.claims, _claims.compute_node_id == _nodes.id)
        .join(
            other,
            sa.and_(
                other.c.workload_uuid == _claims.workload_uuid,
                other.c.compute_node_id != _claims.compute_node_id,
            ),
        )
        .join(place, place.c.id == other.c.compute_node_id)
        .where(
            _nodes.host == host,
            _claims.state.in_(active),
            other.c.state.in_(active),
            ~is_tied,
        )
    )
    return sorted({SplitBrain(*row) for row in rows})
