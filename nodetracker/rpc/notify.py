"""Notify listeners of what was committed.

Notifications are sent from a bounded queue, in a thread of its own. The library loses
those that it cannot send, and blocks while a broker hangs. Here each is retried until it is
sent; in a full queue, older events of an object are merged into newer ones, so that its
newest state is not lost.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from nodetracker.model.change import VERSION, Notification, StoreEvent
from nodetracker.model.errors import ExhaustedError
from nodetracker.model.warning import HostWarning
from nodetracker.ports import Notifier
from nodetracker.process.workers import FLUSH_SECONDS, start_thread
from nodetracker.views.notifications import (
    build_change_notifications,
    build_claim_notification,
    build_migration_notification,
    build_node_deleted_notification,
    build_raised_notifications,
    build_refusal_notification,
    build_service_notification,
    build_warning_notification,
    merge_waiting,
)

LOG = logging.getLogger(__name__)

QUEUE_LENGTH = 1000

RETRY_SECONDS = 5.0
_SLOW = 5
"""How many times as long it waits for one that has not refused any."""


class Send(Protocol):
    """Sends one notification."""

    def __call__(self, event_type: str, payload: dict[str, Any]) -> None:
        """Send it; raises any error of the library and those below it."""


class NotificationQueue:
    """Notifications that wait to be sent; safe for several threads.

    Args:
        length: the maximum number that may wait.
    """

    def __init__(self, length: int = QUEUE_LENGTH) -> None:
        self._length = length
        self._waiting: deque[Notification] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of waiting notifications."""
        return len(self._waiting)

    def put(self, notification: Notification) -> None:
        """Append one; a full queue merges events of the same object, then drops the oldest."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(notification)
            if len(self._waiting) > self._length:
                self._make_room()
            self._changed.notify()

    def first(self, timeout_seconds: float | None) -> Notification | None:
        """Return the oldest, which `take` removes; None if none arrives in time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting), timeout_seconds)
            return self._waiting[0] if self._waiting else None

    def take(self, notification: Notification) -> None:
        """Remove one that was sent; it may have been dropped meanwhile."""
        with self._changed:
            if self._waiting and self._waiting[0] is notification:
                self._waiting.popleft()
            self._changed.notify()

    def close(self) -> None:
        """Discard all, now and later, without counting them as dropped."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self.dropped = 0

    def _make_room(self) -> None:
        kept = deque(merge_waiting(self._waiting))
        while len(kept) > self._length:
            kept.popleft()
        self.dropped += len(self._waiting) - len(kept)
        self._waiting = kept


class NotificationSender:
    """`nodetracker.ports.Notifier` over the broker.

    Args:
        make_send: connects at the first notification; returns None if
            notifications are not configured.
    """

    def __init__(
        self,
        make_send: Callable[[], Send | None],
        queue: NotificationQueue | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._make_send = make_send
        self._queue = NotificationQueue() if queue is None else queue
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._logged_dropped = 0
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Why notifications wait, None while they are sent."""
        return self._error

    @property
    def dropped(self) -> int:
        """Number of those dropped since the start because the queue was full."""
        return self._queue.dropped

    @property
    def waiting(self) -> int:
        """Number of those that wait to be sent."""
        return len(self._queue)

    def notify(self, notification: Notification) -> None:
        """Queue one notification."""
        self._queue.put(notification)
        with self._lock:
            if self._thread is None:
                try:
                    self._thread = start_thread("notifications", self._run)
                except ExhaustedError as error:
                    self._note_failure(str(error))

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all are sent; log the number of those left at the timeout.

        Args:
            timeout_seconds: since the last one was sent, while the broker refuses them; one
                that is only slow has more.
        """
        left, sent_at = self.waiting, time.monotonic()
        while left:
            limit = timeout_seconds * (_SLOW if self._error is None else 1)
            if time.monotonic() - sent_at >= limit:
                break
            time.sleep(0.01)
            before, left = left, self.waiting
            if left < before:
                sent_at = time.monotonic()
        self._stopping.set()
        if left:
            LOG.warning("Notifications not sent: %d; the broker did not accept them", left)
        return not left

    def _run(self) -> None:
        send: Send | None = None
        while not self._stopping.is_set():
            notification = self._queue.first(None)
            if notification is None:
                continue
            problem: str | None = None
            try:
                send = send or self._make_send()
                if send is None:
                    self._queue.close()
                    return
                send(notification.event_type, {"version": VERSION, **notification.payload})
            except Exception as error:  # any error of the library is retried
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                self._note_failure(problem)
                self._stopping.wait(self._retry_seconds)
                continue
            self._queue.take(notification)
            if self._error is not None:
                LOG.info("Notifications are sent again")
                self._error = None
            self._log_dropped()

    def _note_failure(self, problem: str) -> None:
        """Keep why notifications wait, and log the first reason."""
        if self._error is None:
            LOG.warning("Notifications wait: %s", problem)
        self._error = problem

    def _log_dropped(self) -> None:
        dropped = self._queue.dropped
        if dropped != self._logged_dropped and not self.waiting:
            LOG.warning(
                "Notifications dropped while the broker was away: %d, "
                "first those that were merged into newer ones",
                dropped - self._logged_dropped,
            )
            self._logged_dropped = dropped


class StoreNotifier:
    """`nodetracker.ports.StoreObserver`: notifies of what a process's store has committed.

    A warning that an agent stores is raised once for each run of the agent.
    """

    def __init__(self, notifier: Notifier) -> None:
        self._notify = notifier.notify
        self._active: dict[str, tuple[HostWarning, ...]] = {}

    def committed(self, event: StoreEvent) -> None:
        """Queue the notifications of one call."""
        for change in event.changes:
            for notification in build_change_notifications(change):
                self._notify(notification)
        for claim in event.claims:
            self._notify(build_claim_notification(claim))
        for migration in event.migrations:
            self._notify(build_migration_notification(migration))
        for host, nodename, uuid in event.deleted_nodes:
            self._notify(build_node_deleted_notification(host, nodename, uuid))
        for before, after in event.services:
            self._notify(build_service_notification(before, after))
            if after is not None and (before is None or before.epoch != after.epoch):
                self._active.pop(after.host, None)
        if event.active is not None:
            host, warnings = event.active
            for notification in build_raised_notifications(
                host, self._active.pop(host, ()), warnings
            ):
                self._notify(notification)
            if warnings:
                self._active[host] = warnings
        for host, warning in event.raised:
            self._notify(build_warning_notification("warning.raise", host, warning))
        for found in event.resolved:
            self._notify(build_warning_notification("warning.resolve", found.host, found.warning))
        for refusal in event.refused:
            self._notify(build_refusal_notification(refusal))
