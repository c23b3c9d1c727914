"""Check whether the broker delivers calls: a conductor calls itself through it."""

import time
from collections.abc import Callable

from nodetracker.model.errors import RpcError
from nodetracker.model.service import BROKER, AuditState

GRACE_SECONDS = 60.0
"""How long agents may take to reconnect to a broker that is back."""


class BrokerWatch:
    """Remembers since when the broker has delivered nothing.

    Meanwhile agents whose heartbeats come through it send none and may well be
    alive, so a conductor's row records it.

    Args:
        call_self: makes a call to this same process through the broker.
    """

    def __init__(
        self, call_self: Callable[[], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_self = call_self
        self._monotonic = monotonic
        self._good_at: float | None = None
        self._error: str | None = None
        self._back_at: float | None = None

    def check(self) -> None:
        """Make one call."""
        called_at = self._monotonic()
        try:
            self._call_self()
        except RpcError as error:
            self._error = str(error)
        else:
            if self._error is not None:
                self._back_at = self._monotonic()
            if not self.is_out:
                self._good_at = called_at
            self._error = None

    @property
    def error(self) -> str | None:
        """Why the broker delivers nothing, None while it does."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True while it delivers nothing, and until the agents have had time to reconnect."""
        if self._error is not None:
            return True
        back_at = self._back_at
        return back_at is not None and self._monotonic() - back_at < GRACE_SECONDS

    def state(self) -> AuditState:
        """Return the entry for the conductor's row; its age is that of the last good answer."""
        if not self.is_out:
            return AuditState()
        age = None if self._good_at is None else self._monotonic() - self._good_at
        error = self._error or "delivers calls again, and agents are reconnecting"
        return AuditState(nodes={BROKER: {"age_seconds": age, "error": error}})
