"""Query an engine about itself, and only as often as its report may have changed."""

from collections.abc import Callable

from nodetracker.model.errors import DriverUnavailableError
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.info import EngineReport, parse_report

MAX_AGE_SECONDS = 50.0
"""Maximum age of a report; an event of the daemon expires it earlier."""

PAUSE_FACTOR = 4
"""Pause after a call that failed, as a multiple of its duration."""


class ReportReader:
    """Keeps an engine's last report about itself, and queries it again when that is due.

    Podman's service (seen with 4.3) starts other programs for ``/info`` and
    ``/version``, and finishes these calls even if nobody waits for them. So that
    they do not pile up on a busy machine, a call that timed out is followed by a pause.

    Args:
        monotonic: monotonic clock, in seconds.
    """

    def __init__(self, client: EngineClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._report: EngineReport | None = None
        self._report_at = 0.0
        self._expired_at = 0.0
        self._error: DriverUnavailableError | None = None
        self._paused_until = 0.0

    def expire(self) -> None:
        """Query the engine again at the next reading: the report may have changed."""
        self._expired_at = self._monotonic()

    def end_pause(self) -> None:
        """Query the engine again at the next reading even after a timeout: it has restarted."""
        self.expire()
        self._error = None

    def read(self, has_live_events: bool) -> EngineReport:
        """Return the report.

        Args:
            has_live_events: an event reports each change, so that the last report may be used.

        Raises:
            DriverUnavailableError: the engine does not answer, or did not before the pause.
            HostDataError: the answer is invalid.
        """
        started_at = self._monotonic()
        report = self._report
        age = started_at - self._report_at
        is_current = age < MAX_AGE_SECONDS and self._report_at > self._expired_at
        if report is not None and has_live_events and is_current:
            return report
        error = self._error
        if error is not None and started_at < self._paused_until:
            raise DriverUnavailableError(error.source, error.reason)
        try:
            report = parse_report(self._client.info(), self._client.version(), self._client.source)
        except DriverUnavailableError as failure:
            ended_at = self._monotonic()
            self._paused_until = ended_at + PAUSE_FACTOR * (ended_at - started_at)
            self._error = failure
            raise
        self._report, self._report_at, self._error = report, started_at, None
        return report
