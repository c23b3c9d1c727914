"""Whether the broker carries calls: a conductor asks itself through it."""

import time
from collections.abc import Callable

from nodetracker.errors import RpcError
from nodetracker.model.service import BROKER, AuditState

GRACE_SECONDS = 60.0
"""How long agents may take to find a broker again that is back."""


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
        self._back_at: float | None = None

    def look(self) -> None:
        """Ask once."""
        asked_at = self._monotonic()
        try:
            self._ask()
        except RpcError as error:
            self._error = str(error)
        else:
            if self._error is not None:
                self._back_at = self._monotonic()
            if not self.is_out:
                self._good_at = asked_at
            self._error = None

    @property
    def error(self) -> str | None:
        """Why the broker carries nothing, None while it does."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True while it carries nothing, and until the agents have had time to come back."""
        if self._error is not None:
            return True
        back_at = self._back_at
        return back_at is not None and self._monotonic() - back_at < GRACE_SECONDS

    def state(self) -> AuditState:
        """Return what the conductor's row says of it; its age is that of the last good answer."""
        if not self.is_out:
            return AuditState()
        age = None if self._good_at is None else self._monotonic() - self._good_at
        error = self._error or "carries calls again, and agents are coming back"
        return AuditState(nodes={BROKER: {"age_seconds": age, "error": error}})
