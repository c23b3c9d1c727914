"""Express by columns whether nodes have enough of further resource classes."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from nodetracker.db.candidates.screens import Amount, Condition, double
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import has_text, json_number
from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES

_nodes = tables.compute_nodes.c
_claims = tables.claims.c


class ClaimedClasses:
    """The amounts of resource classes that the active claims on each node hold.

    Args:
        names: of the classes.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._labels = {name: f"class_{number}" for number, name in enumerate(sorted(names))}
        text = sa.type_coerce(_claims.resources, sa.Text())
        query: sa.Select[Any] = (
            sa.select(
                _claims.compute_node_id,
                *(
                    sa.func.sum(json_number(_claims.resources, name)).label(label)
                    for name, label in self._labels.items()
                ),
            )
            .where(
                _claims.state.in_([state.value for state in ACTIVE_STATES]),
                sa.or_(sa.false(), *(has_text(text, render_json(name)) for name in self._labels)),
            )
            .group_by(_claims.compute_node_id)
        )
        self._table = query.subquery("claimed")

    def join(self, source: sa.FromClause) -> sa.FromClause:
        """Return a source that contains nodes with these amounts."""
        if not self._labels:
            return source
        return source.outerjoin(self._table, self._table.c.compute_node_id == _nodes.id)

    def amount_of(self, name: str) -> Amount:
        """Return the amount that is held of a class."""
        return sa.func.coalesce(self._table.c[self._labels[name]], double(0))


def has_class(name: str) -> Condition:
    """Return the condition that a node's inventory contains a class."""
    return json_number(_nodes.inventory, name, "total").is_not(None)


def fails_class(
    name: str, amount: int, claimed: Amount, limits: Mapping[str, int | None]
) -> Condition:
    """Return the condition that a node lacks the class or an amount of it, or has other units."""
    fails: list[Condition] = [_number(name, "total", None).is_(None)]
    if amount:
        step = sa.cast(_number(name, "step_size", 1), sa.BigInteger())
        fails.append(double(amount) < _number(name, "min_unit", 1))
        fails.append(sa.literal(amount, sa.BigInteger()) % step != 0)
        fails += _fails_amount(name, amount, claimed, limits)
    return sa.or_(*fails)


def _fails_amount(
    name: str, amount: int, claimed: Amount, limits: Mapping[str, int | None]
) -> list[Condition]:
    total, reserved = _number(name, "total", None), _number(name, "reserved", 0)
    wanted = double(amount) + claimed
    if name in limits:
        limit = limits[name]
        return [] if limit is None else [wanted + reserved > double(limit)]
    largest = sa.func.coalesce(_number(name, "max_unit", None), total)
    ratio = _number(name, "allocation_ratio", 1)
    return [wanted > (total - reserved) * ratio, double(amount) > largest]


def _number(name: str, key: str, default: int | None) -> Amount:
    """Return a number of a class's inventory."""
    found = json_number(_nodes.inventory, name, key)
    return found if default is None else sa.func.coalesce(found, double(default))
