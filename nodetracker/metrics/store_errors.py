"""Count the store's errors by kind."""

import enum
from collections.abc import Mapping

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import counters
from nodetracker.model.errors import ConflictError, SchemaError, StoreError, StoreUnavailableError


class StoreErrorKind(enum.StrEnum):
    """Why the database could not be used."""

    UNAVAILABLE = "unavailable"
    SCHEMA = "schema"
    CONFLICT = "conflict"
    REFUSED = "refused"


def kind_of_store_error(error: StoreError) -> StoreErrorKind:
    """Return the kind of an error."""
    if isinstance(error, StoreUnavailableError):
        return StoreErrorKind.UNAVAILABLE
    if isinstance(error, SchemaError):
        return StoreErrorKind.SCHEMA
    if isinstance(error, ConflictError):
        return StoreErrorKind.CONFLICT
    return StoreErrorKind.REFUSED


def render_store_errors(name: str, text: str, counts: Mapping[StoreErrorKind, int]) -> Metric:
    """Return the counter of errors by kind."""
    samples = [((kind.value,), counts.get(kind, 0)) for kind in StoreErrorKind]
    return counters(name, text, ("kind",), samples)
