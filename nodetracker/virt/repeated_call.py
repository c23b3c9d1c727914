"""Repeat a call that may be slow in a thread, and use its last outcome until the next one ends."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodetracker.process.workers import HangGuard, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a call returned, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Latest(Generic[T]):
    """The last outcome of a repeated call.

    Attributes:
        is_pending: a newer call is running.
    """

    outcome: Outcome[T]
    is_pending: bool


class RepeatedCall(Generic[T]):
    """A call of which at most one runs; whoever needs its outcome waits briefly.

    Args:
        name: first part of its threads' names.
        call: the call.
        overdue: error of a call that exceeds its budget; it is not made again
            until the hung one returns.
        on_late: called in the call's thread when a call ends that `latest` did not wait for.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], T],
        overdue: BaseException,
        on_late: Callable[[], None],
    ) -> None:
        self._call = call
        self._overdue: Outcome[T] = Outcome(error=overdue)
        self._on_late = on_late
        self._guard: HangGuard[str] = HangGuard(name, 1)
        self._changed = threading.Condition()
        self._number = 0
        self._task: Task[None] | None = None  # of the call that is running
        self._started_at = 0.0
        self._last: Outcome[T] | None = None
        self._is_used = True
        self._is_late = False

    def start(self) -> None:
        """Make the call in a thread, unless it is running or hangs."""
        with self._changed:
            if self._task is not None:
                return
            self._number += 1
            number = self._number
            self._is_late = False
            self._started_at = time.monotonic()
            self._task = self._guard.start("", lambda: self._run(number))
            if self._task is None:
                self._end(self._overdue)
            elif self._task.is_done and self._task.error is not None:  # no thread could be started
                self._end(Outcome(error=self._task.error))

    @property
    def is_busy(self) -> bool:
        """Whether a call is running, or has ended and its outcome was not used yet."""
        with self._changed:
            return self._task is not None or not self._is_used

    def latest(self, patience_seconds: float, budget_seconds: float) -> Latest[T]:
        """Wait for a running call, and return the last outcome.

        Args:
            patience_seconds: duration of the call after which the outcome of the
                previous one is returned; the first one is waited for within its budget.
            budget_seconds: limit of the call's duration.
        """
        with self._changed:
            limit = self._started_at + budget_seconds
            patience = budget_seconds if self._last is None else patience_seconds
            until = min(limit, self._started_at + patience)
            self._changed.wait_for(lambda: self._task is None, max(0.0, until - time.monotonic()))
            if self._task is not None and time.monotonic() >= limit:
                self._guard.abandon("", self._task)
                self._number += 1  # its outcome is ignored
                self._end(self._overdue)
            self._is_late = self._task is not None
            if not self._is_late:
                self._is_used = True
            assert self._last is not None
            return Latest(self._last, self._is_late)

    def _run(self, number: int) -> None:
        try:
            outcome = Outcome(self._call())
        except BaseException as error:  # the caller of `latest` handles it
            outcome = Outcome(error=error)
        with self._changed:
            if number != self._number:
                return
            self._end(outcome)
            is_late = self._is_late
        if is_late:
            self._on_late()

    def _end(self, outcome: Outcome[T]) -> None:
        self._task, self._last, self._is_used = None, outcome, False
        self._changed.notify_all()
