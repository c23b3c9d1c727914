"""Notify observers of audits, in the order of the audits."""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from nodetracker.model.audit import AuditReport
from nodetracker.ports import AuditObserver

LOG = logging.getLogger(__name__)


class ReportQueue:
    """Reports that observers have not seen yet; safe for several threads.

    Reports are added while no other audit can run, and observers notified
    afterwards, so that a slow observer does not delay the next audit.
    """

    def __init__(self, observers: Sequence[AuditObserver]) -> None:
        self._observers = tuple(observers)
        self._reports: deque[AuditReport] = deque()
        self._notifying = threading.Lock()

    def add(self, report: AuditReport) -> None:
        """Add the report of an audit that ended."""
        self._reports.append(report)

    def notify(self) -> None:
        """Notify the observers of all reports, the oldest first."""
        with self._notifying:
            while self._reports:
                self._notify_of(self._reports.popleft())

    def _notify_of(self, report: AuditReport) -> None:
        for observer in self._observers:
            try:
                observer.audited(report)
            except Exception:  # a faulty observer must not affect the audit
                LOG.exception("Audit observer %s failed", type(observer).__name__)
