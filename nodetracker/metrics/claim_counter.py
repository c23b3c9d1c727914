"""Count claim requests by outcome, and refusals by the check that failed.

Apart from the families, so that a process without metrics imports no prometheus_client.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodetracker.model.errors import ClaimRefusedError, NodetrackerError

OTHER = "other"
"""In place of a check: the node does not exist, or the source of a move cannot be moved."""


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """Claim requests since the start.

    Attributes:
        checks: name of a check or `OTHER` -> refused requests that failed it.
    """

    granted: int
    refused: int
    checks: Mapping[str, int]


class ClaimCounter:
    """Counts requests for claims, and for the destinations of moves; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._granted = self._refused = 0
        self._checks: Counter[str] = Counter()

    @contextlib.contextmanager
    def count(self) -> Iterator[None]:
        """Count one request by its outcome; errors other than a refusal are not counted."""
        try:
            yield
        except ClaimRefusedError as error:
            with self._lock:
                self._refused += 1
                self._checks.update(error.checks or (OTHER,))
            raise
        with self._lock:
            self._granted += 1

    def note(self, outcome: object) -> None:
        """Count one request by what was granted, or by the error."""
        with contextlib.suppress(NodetrackerError), self.count():
            if isinstance(outcome, NodetrackerError):
                raise outcome

    def read(self) -> ClaimCounts:
        with self._lock:
            return ClaimCounts(self._granted, self._refused, self._checks.copy())
