"""Keep one overview of the fleet for all callers, with its JSON and gzip."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Self

from nodetracker.api.encoding import EncodedBody, compress, make_tag, render_json
from nodetracker.model.errors import BusyError
from nodetracker.model.settings import ApiSettings
from nodetracker.ports import Store
from nodetracker.views.overview import Overview, build_overview
from nodetracker.views.plain_overview import render_overview

COST_FACTOR = 10
"""An overview is kept this many times as long as making it takes, or longer."""

WAIT_SECONDS = 10.0
"""How long a caller waits for another one's overview while none is kept for it."""

_BASES = 30
"""So many of the last overviews are known by their tags."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """JSON of the lines of nodes, and which of the overviews, by number, had each first.

    Attributes:
        numbers: of the overviews with the same nodes, by tag.
    """

    nodes: tuple[str, ...] = ()  # uuids
    json: tuple[bytes, ...] = ()
    first: tuple[int, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)

    def follow(self, nodes: Sequence[Mapping[str, Any]], tag: str, json: Sequence[bytes]) -> Self:
        """Return the lines of the next overview."""
        uuids = tuple(node["uuid"] for node in nodes)
        number = max(self.numbers.values(), default=0) + 1
        first: tuple[int, ...] = (number,) * len(uuids)
        kept: list[tuple[str, int]] = []
        if uuids == self.nodes:
            lines = zip(self.json, json, self.first, strict=True)
            first = tuple(at if old == new else number for old, new, at in lines)
            kept = sorted(self.numbers.items(), key=itemgetter(1))[1 - _BASES :]
        return type(self)(uuids, tuple(json), first, {**dict(kept), tag: number})


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
    _rest: Mapping[str, Any]  # of the document, without the nodes
    _lines: _Lines

    def list_changes(self, base: str) -> EncodedBody:
        """Return the body with only the nodes that differ from another answer.

        Args:
            base: that answer's entity tag. If it is not known, all nodes are in the body.
        """
        tag = base.removeprefix("W/")
        number = self._lines.numbers.get(tag)
        if number is None:
            return self.body
        pairs = zip(self._lines.json, self._lines.first, strict=True)
        changed = [line for line, first in pairs if first > number]
        plain = _join({**self._rest, "base": base}, changed)
        return EncodedBody(plain, compress(plain), self.body.tag)


@dataclass(slots=True)
class _Making:
    """One making of an overview; those who wait for it get its error, too.

    Attributes:
        changes: number of changes before it was started, all of which it has.
    """

    changes: int
    is_over: bool = False
    error: Exception | None = None


_is_over = attrgetter("is_over")


def _join(document: Mapping[str, Any], lines: Sequence[bytes]) -> bytes:
    """Return a document as JSON, with the lines of its nodes."""
    return render_json(document)[:-1] + b',"nodes":[' + b",".join(lines) + b"]}"


class FleetCache:
    """Makes at most one overview at a time; meanwhile, other callers get the last one.

    A user who changed something never gets an overview from before that change. Others
    may, until the next one is made, so that a change makes nobody else wait.

    Args:
        seconds: monotonic time.
    """

    def __init__(
        self, store: Store, settings: ApiSettings, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._settings = settings
        self._seconds = seconds
        self._ended = threading.Condition()
        self._making: _Making | None = None
        self._kept: KeptOverview | None = None
        self._until = self._until_if_changed = 0.0
        self._lines = _Lines()
        self._changes = 0  # that were made through this process
        self._kept_changes = 0  # that the kept overview has
        self._changes_of: dict[str, int] = {}  # user -> its last one that the kept one lacks

    def get(self, user: str | None = None) -> KeptOverview:
        """Return the kept overview, or make one.

        Args:
            user: who asks, by the name that `invalidate` gets; None = nobody who changes
                anything.

        Raises:
            StoreError: the store did not answer.
            BusyError: nothing is kept for the user, and another caller's making takes too long.
        """
        with self._ended:
            while True:
                making = self._making
                kept = None if user in self._changes_of else self._kept
                if kept is not None and (making is not None or not self._is_due()):
                    return kept
                if making is None:
                    making = self._making = _Making(self._changes)
                    break
                self._wait(making)
        try:
            started_at = self._seconds()
            kept = self._make()
        except Exception as error:
            self._end(making, error)
            raise
        self._end(making, None, kept, self._seconds() - started_at)
        return kept

    def invalidate(self, user: str) -> None:
        """Make the next overview soon, as a user may have made a change."""
        with self._ended:
            self._changes += 1
            self._changes_of[user] = self._changes

    @property
    def age_seconds(self) -> float | None:
        """Age of the kept overview, None without one."""
        kept = self._kept
        return None if kept is None else self._seconds() - kept.made_at

    def _is_due(self) -> bool:
        is_changed = self._kept_changes < self._changes
        return self._seconds() >= (self._until_if_changed if is_changed else self._until)

    def _wait(self, making: _Making) -> None:
        if not self._ended.wait_for(partial(_is_over, making), WAIT_SECONDS):
            raise BusyError("the overview is being made; try again later")
        if making.error is not None:
            raise making.error

    def _make(self) -> KeptOverview:
        settings = self._settings
        overview = build_overview(
            self._store.read_overview(),
            settings.service_down_time,
            settings.held_fact_expiry,
        )
        document = render_overview(overview, settings.overview_max_nodes)
        document["base"] = None
        nodes = document.pop("nodes")
        lines = [render_json(node) for node in nodes]
        tag = make_tag(_join({**document, "now": None}, lines))
        plain = _join(document, lines)
        body = EncodedBody(plain, compress(plain), tag)
        self._lines = self._lines.follow(nodes, tag, lines)
        return KeptOverview(overview, body, self._seconds(), document, self._lines)

    def _end(
        self,
        making: _Making,
        error: Exception | None,
        kept: KeptOverview | None = None,
        took_seconds: float = 0.0,
    ) -> None:
        with self._ended:
            making.is_over, making.error = True, error
            self._making = None
            if kept is not None:
                self._kept, self._kept_changes = kept, making.changes
                self._changes_of = {
                    user: change
                    for user, change in self._changes_of.items()
                    if change > making.changes
                }
                now, least = self._seconds(), float(self._settings.overview_max_age)
                self._until = now + max(least, COST_FACTOR * took_seconds)
                self._until_if_changed = now + took_seconds  # one thread, half of the time
            self._ended.notify_all()
