"""Find workloads that are on several nodes without an open migration."""

from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES, OPEN, SplitBrain
from nodetracker.model.guest import PowerState

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c
_ACTIVE = [state.value for state in ACTIVE_STATES]
_OPEN = _migrations.status.in_([status.value for status in OPEN])

_other = tables.claims.alias("other_claims")
_place = tables.compute_nodes.alias("other_nodes")


def list_split_brains(connection: sa.Connection, host: str) -> list[SplitBrain]:
    """See `Store.list_split_brains`."""
    rows = connection.execute(sa.union_all(_select_claimed(host), _select_running(host)))
    return sorted(
        {
            SplitBrain(nodename, workload_uuid, other_host, other_nodename, bool(is_claimed))
            for nodename, workload_uuid, other_host, other_nodename, is_claimed in rows
        }
    )


def _select_claimed(host: str) -> "sa.Select[Any]":
    both = [_claims.uuid, _other.c.uuid]
    is_tied = sa.exists().where(
        _migrations.workload_uuid == _claims.workload_uuid,
        _OPEN,
        _migrations.source_claim.in_(both),
        _migrations.dest_claim.in_(both),
    )
    here = sa.and_(_claims.compute_node_id == _nodes.id, _claims.state.in_(_ACTIVE))
    return _select(host, tables.claims, here, _claims.workload_uuid, is_claimed=True).where(
        ~is_tied
    )


def _select_running(host: str) -> "sa.Select[Any]":
    is_moving = sa.exists().where(_migrations.workload_uuid == _guests.uuid, _OPEN)
    here = sa.and_(
        _guests.compute_node_id == _nodes.id,
        _guests.power_state == PowerState.RUNNING.value,
        _guests.claim_uuid.is_(None),
        _guests.missing_since.is_(None),
    )
    return _select(host, tables.guests, here, _guests.uuid, is_claimed=False).where(~is_moving)


def _select(
    host: str,
    table: sa.Table,
    here: sa.ColumnElement[bool],
    workload_uuid: sa.Column[str],
    is_claimed: bool,
) -> "sa.Select[Any]":
    """Select a table's rows on a host's nodes whose workload holds a claim on another node."""
    return (
        sa.select(
            _nodes.hypervisor_hostname,
            workload_uuid,
            _place.c.host,
            _place.c.hypervisor_hostname,
            sa.literal(int(is_claimed)),
        )
        .select_from(tables.compute_nodes)
        .join(table, here)
        .join(
            _other,
            sa.and_(
                _other.c.workload_uuid == workload_uuid,
                _other.c.compute_node_id != _nodes.id,
                _other.c.state.in_(_ACTIVE),
            ),
        )
        .join(_place, _place.c.id == _other.c.compute_node_id)
        .where(_nodes.host == host)
    )
