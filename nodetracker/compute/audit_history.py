"""Keep the outcome of a host's audits: the time of the last one, and which nodes are not fine."""

import threading
from collections.abc import Callable

from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.service import AuditState, ServiceRecord


class AuditHistory:
    """Keeps what heartbeats and the status report of audits; safe for several threads.

    Args:
        monotonic: seconds that never go back, for ages.

    Attributes:
        listing_error: why not all nodes could be listed, None when they were.
        clock_skew_seconds: as the last audit measured it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last_audit: float | None = None
        self._last_good: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._has_driver_uuids: bool | None = None
        self.listing_error: str | None = None
        self.clock_skew_seconds: float | None = None

    @property
    def fine_nodes(self) -> int:
        """The number of nodes whose last reading was fine."""
        with self._lock:
            return len(self._last_good.keys() - self._errors.keys())

    def state(self) -> AuditState:
        """Return the age of the last audit, and of each node that is not fine its last good one."""
        with self._lock:
            now = self._monotonic()
            return AuditState(
                age_seconds=None if self._last_audit is None else now - self._last_audit,
                nodes={
                    name: {
                        "age_seconds": now - self._last_good[name]
                        if name in self._last_good
                        else None,
                        "error": error,
                    }
                    for name, error in self._errors.items()
                },
                has_driver_uuids=self._has_driver_uuids,
            )

    def note(self, report: AuditReport) -> None:
        """Add the outcome of an audit."""
        with self._lock:
            now = self._monotonic()
            good = self._list_good_before(report)
            if report.read is None:
                self._last_audit = now
            self._errors = dict(report.errors)
            if report.has_driver_uuids:
                self._has_driver_uuids = True
            elif self._has_driver_uuids is None and report.read is None and report.is_good:
                self._has_driver_uuids = False
            self.listing_error = report.listing_error
            self.clock_skew_seconds = report.clock_skew_seconds
            read = report.nodes.keys() if report.read is None else report.read
            fine = [name for name in read if name not in report.errors]
            self._last_good = good | dict.fromkeys(fine, now)

    def carry_on(self, service: ServiceRecord) -> None:
        """Continue with the ages of an earlier run of the agent, which its row stores."""
        if service.last_seen_up is None or service.updated_at is None:
            return
        since = max(0.0, (service.updated_at - service.last_seen_up).total_seconds())
        now = self._monotonic()

        def moment(age: float | None) -> float | None:
            return None if age is None else now - since - age

        with self._lock:
            self._last_audit = moment(service.last_audit.get("age_seconds"))
            for name, entry in service.last_audit.get("nodes", {}).items():
                self._errors[name] = entry["error"]
                good = moment(entry["age_seconds"])
                if good is not None:
                    self._last_good[name] = good

    def _list_good_before(self, report: AuditReport) -> dict[str, float]:
        """Return when each remaining node was last read in full before this audit.

        The services row names only nodes that were not fine; all others were
        read by the last audit, even if an earlier run of the agent made it.
        """
        good = {name: at for name, at in self._last_good.items() if name in report.nodes}
        if self._last_audit is None:
            return good
        new = {change.nodename for change in report.changes if change.kind is ChangeKind.CREATE}
        was_fine = report.nodes.keys() - good.keys() - self._errors.keys() - new
        return good | dict.fromkeys(was_fine, self._last_audit)
