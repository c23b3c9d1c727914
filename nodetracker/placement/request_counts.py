"""Count the requests to placement by method and outcome."""

import enum
import threading
from collections import Counter
from collections.abc import Mapping

from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementError,
    PlacementNotFoundError,
    PlacementUnavailableError,
)


class RequestOutcome(enum.StrEnum):
    """The outcome of a request, in metrics."""

    DONE = "done"
    CONFLICT = "conflict"  # another writer was first
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"  # no usable answer


class RequestCounts:
    """Counts requests since the start; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, error: PlacementError | None) -> None:
        """Count one request."""
        with self._lock:
            self._counts[method, outcome_of(error).value] += 1

    def read(self) -> Mapping[tuple[str, str], int]:
        """Return (method, outcome) -> number of requests."""
        with self._lock:
            return dict(self._counts)


def outcome_of(error: PlacementError | None) -> RequestOutcome:
    """Return the outcome that an error means; None = the request was carried out."""
    match error:
        case None:
            return RequestOutcome.DONE
        case PlacementConflictError():
            return RequestOutcome.CONFLICT
        case PlacementNotFoundError():
            return RequestOutcome.NOT_FOUND
        case PlacementUnavailableError():
            return RequestOutcome.UNAVAILABLE
    return RequestOutcome.REFUSED
