"""Express by columns whether nodes have enough of further resource classes."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from nodetracker.db.candidates.screens import Amount, Condition, double
from nodetracker.db.connection.dialect import has_text, json_number
from nodetracker.db.json_text import render_json
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
    """Return the condition that a node lacks an amount of a class, or the class."""
    is_missing = json_number(_nodes.inventory, name, "total").is_(None)
    if not amount or (name in limits and limits[name] is None):
        return is_missing
    total = json_number(_nodes.inventory, name, "total")
    reserved = sa.func.coalesce(json_number(_nodes.inventory, name, "reserved"), double(0))
    ratio = sa.func.coalesce(json_number(_nodes.inventory, name, "allocation_ratio"), double(1))
    wanted = double(amount) + claimed
    limit = limits.get(name)
    if limit is not None:
        return sa.or_(is_missing, wanted + reserved > double(limit))
    return sa.or_(is_missing, wanted > (total - reserved) * ratio, double(amount) > total)
