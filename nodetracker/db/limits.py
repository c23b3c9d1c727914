"""Encode the columns of a node that follow from its others, by which candidates are found."""

import dataclasses
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.screening import NodeLimits, limits_of
from nodetracker.db.schema import tables
from nodetracker.model.node import NodeValues

LIMIT_COLUMNS = (*(item.name for item in dataclasses.fields(NodeLimits)), "limits_generation")


def encode_limits(values: NodeValues, generation: int) -> dict[str, Any]:
    """Return the columns that follow from a row's other columns.

    Args:
        generation: of the row with these values. Programs that change a row without its
            limits raise only its own generation, which marks the limits as stale.
    """
    return dataclasses.asdict(limits_of(values)) | {"limits_generation": generation}


def raised_generation() -> dict[str, sa.ColumnElement[int]]:
    """Return the columns of a write that leaves a row's limits as they are.

    Limits that are current stay so, and stale ones stay stale.
    """
    names = ("generation", "limits_generation")
    return {name: tables.compute_nodes.c[name] + 1 for name in names}
