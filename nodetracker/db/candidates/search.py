"""Find candidates: screen all nodes, weigh and order them, and return a page."""

from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import CandidateOrdering
from nodetracker.accounting.weights import STALE, WEIGHED
from nodetracker.db.candidates import ordering
from nodetracker.db.candidates.parameters import RequestShape, list_values, shape_of
from nodetracker.db.candidates.screens import (
    FREE,
    FREE_PCPUS,
    accepts_claims,
    double,
    has_guest,
    has_stale_limits,
    keep_wanted,
)
from nodetracker.db.schema import tables
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
)
from nodetracker.model.claim import Amounts, ClaimRequest
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import CandidatePolicy

_nodes = tables.compute_nodes.c
_services = tables.services.c


SPARE = 100
"""Nodes of a first page beyond its limit whose services are read."""

SPARE_LATER = 1000
"""The same of later pages: the best nodes are often those that accept no claims, and empty."""

STATEMENTS = 32
"""Statements that a process keeps, one for each shape of a search."""


def find_candidates(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: CandidatePolicy,
    limit: int,
    after: CandidateCursor | None,
) -> CandidatePage:
    """See `Store.find_candidates`."""
    searched = limit + (SPARE if after is None else SPARE_LATER)
    query = build_search(shape_of(request), policy, limit, searched, after is None)
    rows = connection.execute(query, list_values(request, policy, after)).all()
    if not rows:
        return CandidatePage(())
    scale = ordering.decode_ends(rows[0].ends) if after is None else after.scale
    weigher = CandidateOrdering(request, policy, scale)
    nodes = tuple(_weigh(row, weigher) for row in rows if row.is_available)
    last = rows[-1]
    if len(nodes) < limit and last.number != searched:
        return CandidatePage(nodes)
    cursor = weigher.locate(_weigh(last, weigher), bool(last.has_stale_limits))
    return CandidatePage(nodes, cursor)


@lru_cache(maxsize=STATEMENTS)
def build_search(
    shape: RequestShape, policy: CandidatePolicy, limit: int, searched: int, is_first: bool
) -> sa.Select[Any]:
    """Return the statement that finds a page of candidates; see `list_values` for its parameters.

    All nodes that pass by their numbers are ordered by few columns. Only the best
    of them are joined to their services, and get the other columns: to look up the
    service of each node takes MariaDB 10.11 as long as all the rest.

    Args:
        searched: number of these. The last of them is returned even if it is
            not available: the next page starts after it.
        is_first: no page was read before.
    """
    placed = _place_nodes(shape, policy, searched, is_first)
    order = ordering.order_by(policy, placed.c)
    best = sa.select(
        placed.c.id,
        *([placed.c[ordering.ENDS]] if is_first else []),
        sa.func.row_number().over(order_by=order).label("number"),
    ).subquery("best")
    is_available = accepts_claims(policy.service_down_time)
    source = best.join(tables.compute_nodes, _nodes.id == best.c.id).outerjoin(
        tables.services,
        sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY),
    )
    return (
        sa.select(
            *best.c,
            _nodes.host,
            _nodes.hypervisor_hostname.label("nodename"),
            FREE_PCPUS.label("pcpus"),
            *(FREE[name].label(name) for name in WEIGHED),
            # Without a service the condition is unknown.
            sa.case((is_available, 1), else_=0).label("is_available"),
            sa.case((has_guest(), 1), else_=0).label("has_guest"),
            sa.case((has_stale_limits(), 1), else_=0).label("has_stale_limits"),
        )
        .select_from(source)
        .where(sa.or_(is_available, best.c.number == searched))
        .order_by(best.c.number)
        .limit(limit)
    )


def _place_nodes(
    shape: RequestShape, policy: CandidatePolicy, limit: int, is_first: bool
) -> sa.Subquery:
    """Return the best nodes that pass by their numbers, whatever their services."""
    scaling = ordering.read_scale(policy, shape) if is_first else ordering.known_scale()
    weight = ordering.weight_of(scaling, policy)
    penalty = sa.case((has_stale_limits(), double(STALE)), else_=double(0))
    columns: list[sa.ColumnElement[Any]] = [_nodes.id]
    if policy.order is CandidateOrder.NAMED:
        columns.append((weight - penalty).label("weight"))
        columns += [_nodes.host, _nodes.hypervisor_hostname.label("nodename")]
    else:
        columns.append((ordering.count_steps(scaling, weight) + penalty).label("steps"))
        columns.append(ordering.hash_of().label("hash"))
    source: sa.FromClause = tables.compute_nodes
    if scaling.table is not None:
        columns.append(scaling.table.c[ordering.ENDS])
        source = source.join(scaling.table, sa.true())
    placed = keep_wanted(sa.select(*columns).select_from(source), shape).subquery("placed")
    page = sa.select(placed).order_by(*ordering.order_by(policy, placed.c)).limit(limit)
    if not is_first:
        page = page.where(ordering.is_after(policy, placed.c))
    return page.subquery("page")


def _weigh(row: Any, weigher: CandidateOrdering) -> CandidateNode:
    free = Amounts(
        vcpu_milli=int(row.vcpu_milli),
        pcpus=row.pcpus,
        memory_mb=int(row.memory_mb),
        disk_mb=int(row.disk_mb),
    )
    return weigher.weigh(row.id, row.host, row.nodename, free, bool(row.has_guest))
