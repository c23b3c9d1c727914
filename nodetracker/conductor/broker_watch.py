"""Whether the broker carries calls: a conductor asks itself through it."""

import time
from collections.abc import Callable

from nodetracker.errors import RpcError
from nodetracker.model.service import BROKER, AuditState


class BrokerWatch:
    """Remembers since when the broker carries nothing.

    While it does not, agents whose heartbeats come through it are silent and
    may well be alive, so a conductor's row says it.

    Args:
        ask: makes a call to this very process through the broker.
    """

    def __init__(
        self, ask: Callable[[], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._good_at: float | None = None
        self._error: str | None = None

    def look(self) -> None:
        """Ask once."""
        asked_at = self._monotonic()
        try:
            self._ask()
        except RpcError as error:
            self._error = str(error)
        else:
            self._error, self._good_at = None, asked_at

    @property
    def error(self) -> str | None:
        """Why the broker carries nothing, None while it does."""
        return self._error

    def state(self) -> AuditState:
        """Return what the conductor's row says of it; its age is that of the last good answer."""
        if self._error is None:
            return AuditState()
        age = None if self._good_at is None else self._monotonic() - self._good_at
        return AuditState(nodes={BROKER: {"age_seconds": age, "error": self._error}})
