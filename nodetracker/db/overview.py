"""Read the rows of the overview: one statement for each table, however many nodes exist."""

from collections.abc import Iterator

import sqlalchemy as sa

from nodetracker.db import codec, services
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import (
    OVERVIEW_COLUMNS,
    OverviewNode,
    OverviewRows,
    UnclaimedSum,
    WarningCount,
)
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.units import MILLI
from nodetracker.model.warning import WarningKind

_nodes = tables.compute_nodes.c
_guests = tables.guests.c
_claims = tables.claims.c
_warnings = tables.warnings.c


def read_overview(connection: sa.Connection) -> OverviewRows:
    """See `Store.read_overview`."""
    return OverviewRows(
        now=connection.execute(sa.select(utc_now())).scalar_one(),
        services=tuple(services.list_services(connection, None, None)),
        nodes=tuple(_list_nodes(connection)),
        unclaimed=tuple(_sum_unclaimed(connection)),
        claims=_count_claims(connection),
        warnings=tuple(_count_warnings(connection)),
    )


def _list_nodes(connection: sa.Connection) -> Iterator[OverviewNode]:
    query = sa.select(
        _nodes.id,
        _nodes.uuid,
        _nodes.host,
        _nodes.hypervisor_hostname.label("nodename"),
        *(_nodes[name] for name in OVERVIEW_COLUMNS),
    ).order_by(_nodes.id)
    return (OverviewNode(**row) for row in connection.execute(query).mappings())


def _sum_unclaimed(connection: sa.Connection) -> Iterator[UnclaimedSum]:
    """Sum by pins, too, which most guests lack and SQL cannot count."""
    query = (
        sa.select(
            _guests.compute_node_id,
            _guests.kind,
            _guests.pins,
            sa.func.count(),
            sa.func.sum(_guests.vcpu_milli),
            sa.func.sum(_guests.memory_mb),
            sa.func.sum(_guests.disk_mb),
        )
        .where(_guests.claim_uuid.is_(None))
        .group_by(_guests.compute_node_id, _guests.kind, _guests.pins)
    )
    for node_id, kind, pins, count, *sums in connection.execute(query):
        vcpu_milli, memory_mb, disk_mb = map(int, sums)
        pcpus = codec.decode_pins(pins).pcpus * count
        shared = max(0, vcpu_milli - pcpus * MILLI)
        yield UnclaimedSum(node_id, WorkloadKind(kind), count, shared, pcpus, memory_mb, disk_mb)


def _count_claims(connection: sa.Connection) -> dict[ClaimState, int]:
    query = sa.select(_claims.state, sa.func.count()).group_by(_claims.state)
    return {ClaimState(state): count for state, count in connection.execute(query)}


def _count_warnings(connection: sa.Connection) -> Iterator[WarningCount]:
    query = (
        sa.select(_warnings.host, _warnings.nodename, _warnings.kind, sa.func.count())
        .where(
            _warnings.resolved_at.is_(None),
            _warnings.kind.in_([kind.value for kind in WarningKind]),  # later versions have more
        )
        .group_by(_warnings.host, _warnings.nodename, _warnings.kind)
        .order_by(_warnings.host, _warnings.nodename, _warnings.kind)
    )
    for host, nodename, kind, count in connection.execute(query):
        yield WarningCount(host, nodename, WarningKind(kind), count)
