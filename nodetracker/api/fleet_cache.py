"""Keep one overview of the fleet for all callers, with its JSON and gzip."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from nodetracker.accounting.reports.overview import Overview, build_overview
from nodetracker.accounting.reports.overview_rendering import render_overview
from nodetracker.api.encoded_body import EncodedBody, compress, make_tag, render_json
from nodetracker.errors import BusyError
from nodetracker.ports import Store
from nodetracker.settings import ApiSettings

COST_FACTOR = 10
"""An overview is kept this many times as long as making it takes, or longer."""

WAIT_SECONDS = 10.0
"""How long a caller waits for another one's overview while none is kept."""


@dataclass(frozen=True, slots=True)
class KeptOverview:
    """An overview that is ready to be sent.

    Attributes:
        body: its tag does not depend on the overview's time.
        made_at: monotonic seconds.
    """

    overview: Overview
    body: EncodedBody
    made_at: float


@dataclass(slots=True)
class _Making:
    """One making of an overview; those who wait for it get its error, too."""

    is_over: bool = False
    is_outdated: bool = False
    error: Exception | None = None


_is_over = attrgetter("is_over")


class FleetCache:
    """Makes at most one overview at a time; meanwhile, other callers get the last one.

    Args:
        seconds: monotonic time.
    """

    def __init__(
        self, store: Store, settings: ApiSettings, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._settings = settings
        self._seconds = seconds
        self._changed = threading.Condition()
        self._making: _Making | None = None
        self._kept: KeptOverview | None = None
        self._until = 0.0

    def get(self) -> KeptOverview:
        """Return the kept overview, or make one.

        Raises:
            StoreError: the store did not answer.
            BusyError: nothing is kept, and another caller's making takes too long.
        """
        with self._changed:
            while (making := self._making) is not None and self._kept is None:
                if not self._changed.wait_for(partial(_is_over, making), WAIT_SECONDS):
                    raise BusyError("the overview is being made; try again later")
                if making.error is not None:
                    raise making.error
            if self._kept is not None and (making is not None or self._seconds() < self._until):
                return self._kept
            making = self._making = _Making()
        try:
            started_at = self._seconds()
            kept = self._make()
        except Exception as error:
            self._end(making, error)
            raise
        self._end(making, None, kept, self._seconds() - started_at)
        return kept

    def empty(self) -> None:
        """Drop the overview, as a change was made; one that is being made is not kept either."""
        with self._changed:
            self._kept = None
            if self._making is not None:
                self._making.is_outdated = True

    @property
    def age_seconds(self) -> float | None:
        """Age of the kept overview, None without one."""
        kept = self._kept
        return None if kept is None else self._seconds() - kept.made_at

    def _make(self) -> KeptOverview:
        settings = self._settings
        overview = build_overview(
            self._store.read_overview(),
            settings.service_down_time,
            settings.held_fact_expiry,
            settings.overview_max_nodes,
        )
        document = render_overview(overview)
        now = render_json({"now": document.pop("now")})
        steady = render_json(document)
        plain = now[:-1] + b"," + steady[1:]
        body = EncodedBody(plain, compress(plain), make_tag(steady))
        return KeptOverview(overview, body, self._seconds())

    def _end(
        self,
        making: _Making,
        error: Exception | None,
        kept: KeptOverview | None = None,
        took_seconds: float = 0.0,
    ) -> None:
        with self._changed:
            making.is_over, making.error = True, error
            self._making = None
            if kept is not None and not making.is_outdated:
                self._kept = kept
                least = float(self._settings.overview_max_age)
                self._until = self._seconds() + max(least, COST_FACTOR * took_seconds)
            self._changed.notify_all()
