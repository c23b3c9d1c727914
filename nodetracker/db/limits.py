"""Encode the columns of a node that follow from its others, by which candidates are found."""

import dataclasses
from typing import Any

from nodetracker.accounting.ledger.screening import NodeLimits, limits_of
from nodetracker.model.node import NodeValues

LIMIT_COLUMNS = tuple(item.name for item in dataclasses.fields(NodeLimits))


def encode_limits(values: NodeValues) -> dict[str, Any]:
    """Return the columns that follow from a row's other columns."""
    return dataclasses.asdict(limits_of(values))
