"""Find candidates: screen all nodes, weigh and order them, and return a page.

Weights and order are those of `accounting.ledger.candidates`, expressed by columns.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import (
    LEAST_STEP,
    PRIME,
    STALE,
    WEIGHED,
    CandidateOrdering,
    best_weight,
    list_multipliers,
    node_hash,
    step_height,
)
from nodetracker.db.connection.dialect import byte_key, json_item, json_list, larger
from nodetracker.db.schema import tables
from nodetracker.db.screens import (
    STATEMENTS,
    Amount,
    Condition,
    RequestShape,
    double,
    has_guest,
    has_stale_limits,
    keep_wanted,
    list_values,
    map_service_checks,
    number,
    shape_of,
    text,
    whole,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    Scale,
)
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.settings import CandidatePolicy

_nodes = tables.compute_nodes.c
_services = tables.services.c

FREE: dict[str, Amount] = {
    "memory_mb": _nodes.memory_mb_free,
    "vcpu_milli": _nodes.vcpu_milli_free,
    "disk_mb": _nodes.disk_mb_free,
}
"""The weighed amounts that are free, as doubles, which are exact up to 2**53."""

ENDS = "ends"
"""The column of the least and most free amounts together; see `decode_ends`."""

SPARE = 100
"""Nodes of a first page beyond its limit whose services are read."""

SPARE_LATER = 1000
"""The same of later pages: the best nodes are often those that accept no claims, and empty."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scale as columns of a table of one row, or as numbers.

    Attributes:
        table: to join, None if these are numbers.
        least, width: of the `WEIGHED` amounts.
        best, height: as `accounting.ledger.candidates` defines them.
    """

    table: sa.FromClause | None
    least: Mapping[str, Amount]
    width: Mapping[str, Amount]
    best: Amount
    height: Amount


def find_candidates(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: CandidatePolicy,
    limit: int,
    after: CandidateCursor | None = None,
) -> CandidatePage:
    searched = limit + (SPARE if after is None else SPARE_LATER)
    query = build_search(shape_of(request), policy, limit, searched, after is None)
    values = list_values(request) | list_position(request, policy, after)
    rows = connection.execute(query, values).all()
    if not rows:
        return CandidatePage(())
    scale = decode_ends(rows[0].ends) if after is None else after.scale
    weigher = CandidateOrdering(request, policy, scale)
    nodes = tuple(_weigh(row, weigher) for row in rows if row.is_available)
    last = rows[-1]
    if len(nodes) < limit and last.number != searched:
        return CandidatePage(nodes)
    cursor = weigher.locate(_weigh(last, weigher), bool(last.has_stale_limits))
    return CandidatePage(nodes, cursor)


def list_position(
    request: ClaimRequest, policy: CandidatePolicy, after: CandidateCursor | None
) -> dict[str, Any]:
    """Return the values by which nodes are weighed and ordered, and those of the page before."""
    numbers = node_hash(request.uuid)
    values = {
        "factor": numbers.factor,
        "offset": numbers.offset,
        **{f"weighed_{name}": float(getattr(request.amounts, name)) for name in WEIGHED},
    }
    if after is None:
        return values
    scale, multipliers = after.scale, policy.multipliers
    least = {name: getattr(scale.least, name) for name in WEIGHED}
    width = {name: max(getattr(scale.most, name) - least[name], 1) for name in WEIGHED}
    is_named = policy.order is CandidateOrder.NAMED
    return {
        **values,
        **{f"known_least_{name}": float(amount) for name, amount in least.items()},
        **{f"known_width_{name}": float(amount) for name, amount in width.items()},
        "best": best_weight(scale, multipliers),
        "height": step_height(request.amounts, scale, multipliers),
        "after_rank": after.rank,
        "after_first": after.host if is_named else after.hash,
        "after_second": after.nodename if is_named else after.node_id,
    }


@lru_cache(maxsize=STATEMENTS)
def build_search(
    shape: RequestShape, policy: CandidatePolicy, limit: int, searched: int, is_first: bool
) -> sa.Select[Any]:
    """Return the statement that finds a page of candidates, by `list_values` and `list_position`.

    All nodes that pass by their numbers are ordered by few columns. Only the best
    of them are joined to their services, and get the other columns: to look up the
    service of each node takes MariaDB 10.11 as long as all the rest.

    Args:
        searched: number of these. The last of them is returned even if it is
            not available: the next page starts after it.
        is_first: no page was read before.
    """
    placed = _place_nodes(shape, policy, searched, is_first)
    order = order_by(policy, placed.c)
    best = sa.select(
        placed.c.id,
        *([placed.c[ENDS]] if is_first else []),
        sa.func.row_number().over(order_by=order).label("number"),
    ).subquery("best")
    is_available = sa.and_(*map_service_checks(policy.service_down_time).values())
    source = best.join(tables.compute_nodes, _nodes.id == best.c.id).outerjoin(
        tables.services,
        tables.HAS_SERVICE,
    )
    return (
        sa.select(
            *best.c,
            _nodes.host,
            _nodes.hypervisor_hostname.label("nodename"),
            (_nodes.pcpus - _nodes.pcpus_used).label("pcpus"),
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
    scaling = read_scale(policy, shape) if is_first else known_scale()
    weight = weight_of(scaling, policy)
    penalty = sa.case((has_stale_limits(), double(STALE)), else_=double(0))
    columns: list[sa.ColumnElement[Any]] = [_nodes.id]
    if policy.order is CandidateOrder.NAMED:
        columns.append((weight - penalty).label("weight"))
        columns += [_nodes.host, _nodes.hypervisor_hostname.label("nodename")]
    else:
        columns.append((count_steps(scaling, weight) + penalty).label("steps"))
        columns.append(hash_of().label("hash"))
    source: sa.FromClause = tables.compute_nodes
    if scaling.table is not None:
        columns.append(scaling.table.c[ENDS])
        source = source.join(scaling.table, sa.true())
    placed = keep_wanted(sa.select(*columns).select_from(source), shape).subquery("placed")
    page = sa.select(placed).order_by(*order_by(policy, placed.c)).limit(limit)
    if not is_first:
        page = page.where(is_after(policy, placed.c))
    return page.subquery("page")


def _weigh(row: Any, weigher: CandidateOrdering) -> CandidateNode:
    free = Amounts(
        vcpu_milli=int(row.vcpu_milli),
        pcpus=row.pcpus,
        memory_mb=int(row.memory_mb),
        disk_mb=int(row.disk_mb),
    )
    return weigher.weigh(row.id, row.host, row.nodename, free, bool(row.has_guest))


def order_by(policy: CandidatePolicy, placed: Any) -> list[sa.ColumnElement[Any]]:
    """Return the columns to order by.

    Args:
        placed: the columns ``weight``, ``host`` and ``nodename`` for `NAMED`, else
            ``steps``, ``hash`` and ``id``.
    """
    if policy.order is CandidateOrder.NAMED:
        return [placed.weight.desc(), byte_key(placed.host), byte_key(placed.nodename)]
    return [placed.steps, placed.hash, placed.id]


def is_after(policy: CandidatePolicy, placed: Any) -> Condition:
    """Return the condition that a node comes after the page before."""
    rank = number("after_rank")
    after: tuple[Any, Any]
    if policy.order is CandidateOrder.NAMED:
        is_same, is_next = placed.weight == rank, placed.weight < rank
        first, second = byte_key(placed.host), byte_key(placed.nodename)
        after = text("after_first"), text("after_second")
    else:
        is_same, is_next = placed.steps == rank, placed.steps > rank
        first, second = placed.hash, placed.id
        after = whole("after_first"), whole("after_second")
    is_later = sa.or_(first > after[0], sa.and_(first == after[0], second > after[1]))
    return sa.or_(is_next, sa.and_(is_same, is_later))


def weight_of(scaling: Scaling, policy: CandidatePolicy) -> Amount:
    """Return the weight of a node; what changes nothing is left out."""
    weight = None
    for name, multiplier in zip(WEIGHED, list_multipliers(policy.multipliers), strict=True):
        share = (FREE[name] - scaling.least[name]) / scaling.width[name]
        part = share if multiplier == 1.0 else double(multiplier) * share
        if multiplier:
            weight = part if weight is None else weight + part
    return double(0) if weight is None else weight


def count_steps(scaling: Scaling, weight: Amount) -> Amount:
    """Return by how many claims a node is worse than the best."""
    return sa.func.floor((scaling.best - weight) / scaling.height + double(0.5), type_=sa.Double())


def hash_of() -> Amount:
    """Return the hash of request and node."""
    return (_nodes.id % PRIME * whole("factor") + whole("offset")) % PRIME


def read_scale(policy: CandidatePolicy, shape: RequestShape) -> Scaling:
    """Return the scale of the nodes that pass by their numbers."""
    ends = _read_ends(shape)
    best, height, widths = double(0), double(0), {}
    for name, multiplier in zip(WEIGHED, list_multipliers(policy.multipliers), strict=True):
        difference = ends.c[MOST + name] - ends.c[LEAST + name]
        # Amounts are whole numbers.
        width = widths[name] = larger(difference, double(1))
        share = double(abs(multiplier)) * (number(f"weighed_{name}") / width)
        best += sa.case((difference > 0, double(max(multiplier, 0.0))), else_=double(0))
        height += sa.case((difference > 0, share), else_=double(0))
    row = sa.select(
        ends.c[ENDS],
        *(ends.c[LEAST + name] for name in WEIGHED),
        *(width.label(WIDTH + name) for name, width in widths.items()),
        best.label("best"),
        larger(height, double(LEAST_STEP)).label("height"),
    )
    table = row.limit(1).subquery("scale")
    return Scaling(
        table,
        {name: table.c[LEAST + name] for name in WEIGHED},
        {name: table.c[WIDTH + name] for name in WEIGHED},
        table.c.best,
        table.c.height,
    )


def _read_ends(shape: RequestShape) -> sa.Subquery:
    """Return the least and most free amounts as a table of one row.

    They come from a JSON array that a scalar subquery returns: MariaDB reads a
    table before it optimizes the rest if it has one row for certain. With the scale
    known, it sorts nodes while it reads the index, without a temporary table. The
    limits keep databases from copying expressions to where their results are used,
    which is for each node.
    """
    amounts = [
        sa.cast(find(FREE[name]), sa.BigInteger())
        for find in (sa.func.min, sa.func.max)
        for name in WEIGHED
    ]
    found = keep_wanted(sa.select(json_list(*amounts)), shape).scalar_subquery()
    packed = sa.select(found.label(ENDS)).limit(1).subquery("packed")
    names = [prefix + name for prefix in (LEAST, MOST) for name in WEIGHED]
    numbers = (
        json_item(packed.c[ENDS], sa.literal_column(str(index))).label(name)
        for index, name in enumerate(names)
    )
    return sa.select(packed.c[ENDS], *numbers).limit(1).subquery("ends")


def decode_ends(ends: str) -> Scale:
    """Return the scale of the column `ENDS`."""
    amounts = json.loads(ends)
    least, most = (
        Amounts(**dict(zip(WEIGHED, part, strict=True)))
        for part in (amounts[: len(WEIGHED)], amounts[len(WEIGHED) :])
    )
    return Scale(least, most)


def known_scale() -> Scaling:
    """Return a scale that a page before has read."""
    return Scaling(
        None,
        {name: number(f"known_least_{name}") for name in WEIGHED},
        {name: number(f"known_width_{name}") for name in WEIGHED},
        number("best"),
        number("height"),
    )


LEAST, MOST, WIDTH = "least_", "most_", "width_"
