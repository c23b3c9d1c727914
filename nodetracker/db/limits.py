"""Encode the columns of a node that follow from its others, by which candidates are found."""

import dataclasses
from typing import Any

from nodetracker.accounting.ledger.screening import NodeLimits, limits_of
from nodetracker.model.node import NodeValues

LIMIT_COLUMNS = (*(item.name for item in dataclasses.fields(NodeLimits)), "limits_generation")


def encode_limits(values: NodeValues, generation: int) -> dict[str, Any]:
    """Return the columns that follow from a row's other columns.

    Args:
        generation: of the row with these values. Programs that change a row without its
            limits raise only its own generation, which marks the limits as stale.
    """
    return dataclasses.asdict(limits_of(values)) | {"limits_generation": generation}
