"""Work removals of providers off in the background, in an agent and in the REST service."""

import logging

from nodetracker.accounting.placement.removal import explain_removals
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.placement.remover import ProviderRemover
from nodetracker.ports import HostStore
from nodetracker.process.loops import PeriodicLoop
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import run_within

LOG = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
_WHAT = "The removal of providers from placement"
_ACTIVITY = "removals"


class HostRemovals:
    """Removes the providers of one host's deleted nodes: observes its agent's audits.

    Args:
        interval_seconds: between looks for removals that others recorded.
    """

    def __init__(
        self,
        host: str,
        remover: ProviderRemover,
        store: HostStore,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._query = RemovalQuery(host=host)
        self._host = host
        self._remover = remover
        self._store = store
        self._warnings: tuple[HostWarning, ...] | None = None
        self._outages = OutageLog(_WHAT, NodetrackerError, LOG)
        self._loop = PeriodicLoop("placement-removals", self._run, interval_seconds, _ignore)

    def audited(self, report: AuditReport) -> None:
        """Remove the providers of nodes that an audit deleted, soon."""
        if any(change.kind is ChangeKind.DELETE for change in report.changes):
            self._loop.wake()

    def start(self) -> None:
        """Start in the background, with the removals that are left."""
        self._loop.start()
        self._loop.wake()

    def work_once(self, timeout_seconds: float) -> None:
        """Attempt what is due, in a process that ends afterwards."""
        run_within(timeout_seconds, "placement-removals", self._run)

    def stop(self, timeout_seconds: float) -> bool:
        """Attempt no further removal; return whether the running one ended in time."""
        self._loop.stop()
        return self._loop.join(timeout_seconds)

    def list_warnings(self) -> tuple[HostWarning, ...] | None:
        """Return the warnings of removals that failed, as of now; None before the first attempt."""
        return self._warnings

    def work(self) -> None:
        """Attempt what is due; without any removal it is one statement.

        Raises:
            PlacementUnavailableError, StoreError: the rest is attempted later.
        """
        if self._store.list_provider_removals(self._host):
            for _ in self._remover.remove_due(self._query):
                pass
            self._warnings = tuple(explain_removals(self._store.list_provider_removals(self._host)))
        else:
            self._warnings = ()

    def _run(self) -> None:
        self._outages.run(_ACTIVITY, self.work)


class UnservedRemovals:
    """Removes the providers of deleted nodes of hosts without an agent, by any other process."""

    def __init__(self, remover: ProviderRemover, store: HostStore) -> None:
        self._remover = remover
        self._store = store
        self._outages = OutageLog(_WHAT, NodetrackerError, LOG)

    def run(self) -> None:
        """Attempt what is due; failures are logged once."""
        self._outages.run(_ACTIVITY, self.work)

    def work(self) -> None:
        """Attempt what is due, and raise or resolve the warnings.

        Raises:
            PlacementUnavailableError, StoreError: the rest is attempted later.
        """
        for removal in self._remover.remove_due(RemovalQuery(is_unserved=True)):
            for warning in explain_removals([removal]):
                self._store.raise_warning(removal.host, warning)
            if not explain_removals(self._store.list_provider_removals(removal.host)):
                self._store.resolve_warnings(WarningKind.PLACEMENT_REMOVAL, [removal.host])


def _ignore(_error: BaseException) -> None:
    """No error of this loop is fatal."""
