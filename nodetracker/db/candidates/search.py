"""Find candidates: screen all nodes, weigh and order them, and return a page."""

from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.weights import WEIGHED
from nodetracker.db.candidates import ordering
from nodetracker.db.candidates.screens import FREE, FREE_PCPUS, is_wanted, list_closed_hosts
from nodetracker.db.column_types import MYSQL_NAMES
from nodetracker.db.schema import tables
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    Scale,
)
from nodetracker.model.claim import Amounts, ClaimRequest
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.settings import CandidatePolicy

_nodes = tables.compute_nodes.c
_services = tables.services.c
_is_service = sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)


def find_candidates(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: CandidatePolicy,
    limit: int,
    after: CandidateCursor | None,
) -> CandidatePage:
    """See `Store.find_candidates`."""
    rows = connection.execute(build_search(request, policy, limit, after)).all()
    nodes = tuple(
        CandidateNode(row.id, row.host, row.nodename, row.weight, _decode_free(row))
        for row in rows
        if row.has_service
    )
    if not rows or len(rows) < limit:
        return CandidatePage(nodes)
    last = rows[-1]
    scale = _decode_scale(last) if after is None else after.scale
    return CandidatePage(
        nodes, CandidateCursor(scale, last.rank, last.hash, last.id, last.host, last.nodename)
    )


def build_search(
    request: ClaimRequest, policy: CandidatePolicy, limit: int, after: CandidateCursor | None
) -> sa.Select[Any]:
    """Return the statement that finds a page of candidates.

    The nodes are ordered by few columns, those of the page get the others. Nodes
    without a service are among them, as they are found only on a page.
    """
    wanted = is_wanted(request)
    if after is None:
        scaling = ordering.read_scale(request, policy, wanted)
    else:
        scaling = ordering.known_scale(request, policy, after.scale)
    weight = ordering.weight_of(scaling, policy)
    is_named = policy.order is CandidateOrder.NAMED
    columns: list[sa.ColumnElement[Any]] = [
        _nodes.id,
        weight.label("weight"),
        (weight if is_named else ordering.count_steps(scaling, weight)).label("rank"),
        ordering.hash_of(request).label("hash"),
    ]
    if is_named:
        columns += [_nodes.host, _nodes.hypervisor_hostname.label("nodename")]
    joined: sa.FromClause = tables.compute_nodes
    if scaling.table is not None:
        ends = [prefix + name for prefix in (ordering.LEAST, ordering.MOST) for name in WEIGHED]
        columns += [scaling.table.c[name] for name in ends]
        # Always true: SQLAlchemy warns of a product without a condition, even with one row.
        joined = joined.join(scaling.table, scaling.least[WEIGHED[0]] <= FREE[WEIGHED[0]])
    closed = list_closed_hosts(policy.service_down_time)
    every = sa.select(*columns).select_from(joined).where(wanted, _nodes.host.not_in(closed))
    placed = (every if request.host else _hint(every)).subquery("placed")
    order = ordering.order_by(policy, placed.c)
    page = sa.select(placed).order_by(*order).limit(limit)
    if after is not None:
        page = page.where(ordering.is_after(policy, placed.c, after))
    best = page.subquery("page")
    return (
        sa.select(
            *(column for column in best.c if column.name not in ("host", "nodename")),
            _nodes.host,
            _nodes.hypervisor_hostname.label("nodename"),
            FREE_PCPUS.label("pcpus"),
            *(FREE[name].label(name) for name in WEIGHED),
            _services.id.is_not(None).label("has_service"),
        )
        .select_from(
            best.join(tables.compute_nodes, _nodes.id == best.c.id).outerjoin(
                tables.services, _is_service
            )
        )
        .order_by(*ordering.order_by(policy, best.c))
    )


def _hint(query: sa.Select[Any]) -> sa.Select[Any]:
    """Let MariaDB and MySQL read an index that contains all columns, in place of the rows."""
    for dialect in MYSQL_NAMES:
        query = query.prefix_with("STRAIGHT_JOIN", dialect=dialect).with_hint(
            tables.compute_nodes, "USE INDEX (ix_compute_nodes_candidates)", dialect
        )
    return query


def _decode_free(row: Any) -> Amounts:
    return Amounts(
        vcpu_milli=int(row.vcpu_milli),
        pcpus=row.pcpus,
        memory_mb=int(row.memory_mb),
        disk_mb=int(row.disk_mb),
    )


def _decode_scale(row: Any) -> Scale:
    ends = (
        {name: int(getattr(row, prefix + name)) for name in WEIGHED}
        for prefix in (ordering.LEAST, ordering.MOST)
    )
    least, most = (Amounts(end["vcpu_milli"], 0, end["memory_mb"], end["disk_mb"]) for end in ends)
    return Scale(least, most)
