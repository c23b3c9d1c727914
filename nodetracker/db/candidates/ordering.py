"""Express the weights and the order of candidates by columns, as `accounting.weights`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.weights import (
    LEAST_STEP,
    PRIME,
    WEIGHED,
    list_multipliers,
)
from nodetracker.db.candidates.parameters import (
    RequestShape,
    least_name,
    weighed_name,
    width_name,
)
from nodetracker.db.candidates.screens import (
    FREE,
    Amount,
    Condition,
    double,
    keep_wanted,
    number,
    text,
    whole,
)
from nodetracker.db.connection.dialect import byte_key, json_item, json_list, larger
from nodetracker.db.schema import tables
from nodetracker.model.candidate import CandidateOrder, Scale
from nodetracker.model.claim import Amounts
from nodetracker.model.settings import CandidatePolicy

_nodes = tables.compute_nodes.c

LEAST, MOST, WIDTH = "least_", "most_", "width_"

ENDS = "ends"
"""The column of the least and most free amounts together; see `decode_ends`."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scale as columns of a table of one row, or as numbers.

    Attributes:
        table: to join, None if these are numbers.
        least, width: of the `WEIGHED` amounts.
        best, height: as `accounting.weights` defines them.
    """

    table: sa.FromClause | None
    least: Mapping[str, Amount]
    width: Mapping[str, Amount]
    best: Amount
    height: Amount


def read_scale(policy: CandidatePolicy, shape: RequestShape) -> Scaling:
    """Return the scale of the nodes that pass by their numbers."""
    ends = _read_ends(shape)
    best, height, widths = double(0), double(0), {}
    for name, multiplier in zip(WEIGHED, list_multipliers(policy.multipliers), strict=True):
        difference = ends.c[MOST + name] - ends.c[LEAST + name]
        # Amounts are whole numbers.
        width = widths[name] = larger(difference, double(1))
        share = double(abs(multiplier)) * (number(weighed_name(name)) / width)
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
        {name: number(least_name(name)) for name in WEIGHED},
        {name: number(width_name(name)) for name in WEIGHED},
        number("best"),
        number("height"),
    )


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
