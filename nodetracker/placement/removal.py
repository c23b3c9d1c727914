"""Remove the providers of deleted nodes from placement, in an agent and in the REST service."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

from oslo_service import periodic_task

from nodetracker.accounting.placement.plan import plan_removal
from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.warnings import explain_removals
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import (
    NodetrackerError,
    PlacementConflictError,
    PlacementError,
    PlacementInUseError,
    PlacementNotFoundError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.placement.client import PlacementClient, read_tree
from nodetracker.ports import HostStore, RemovalStore
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks, Wakeup
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import run_within

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 300.0
"""Delay before a removal that others' consumers prevent is tried again."""

MAX_CONFLICTS = 4
_MAX_WRITES = 100
_WHAT = "The removal of providers from placement"
_ACTIVITY = "removals"


class ProviderRemover:
    """Works removals off; several processes may, as each takes its own by lease."""

    def __init__(self, client: PlacementClient, store: RemovalStore) -> None:
        self._client = client
        self._store = store

    def remove_due(self, query: RemovalQuery) -> Iterator[ProviderRemoval]:
        """Attempt the removals that are due; yield each, with its error if it has to stay.

        Raises:
            PlacementUnavailableError: those that are left are due again when their
                leases end.
            StoreError: the database operation failed; as above.
        """
        for removal in self._store.take_provider_removals(query):
            yield self._attempt(removal)

    def remove(self, uuid: str) -> str | None:
        """Remove the tree of a provider; return why it has to stay, None once it is gone."""
        for _ in range(MAX_CONFLICTS):
            try:
                return self._remove_once(uuid)
            except (PlacementConflictError, PlacementNotFoundError, PlacementInUseError) as error:
                problem = error
            except PlacementUnavailableError:
                raise
            except PlacementError as error:
                return error.reason
        return f"others change it all the time: {problem.reason}"

    def _attempt(self, removal: ProviderRemoval) -> ProviderRemoval:
        error = self.remove(removal.provider_uuid)
        if error is None:
            self._store.finish_provider_removal(removal.provider_uuid)
            LOG.info(
                "Provider %s of the deleted node %s was removed from placement",
                removal.provider_uuid, removal.name,
            )  # fmt: skip
        else:
            self._store.fail_provider_removal(removal.provider_uuid, error, RETRY_SECONDS)
        return replace(removal, error=error)

    def _remove_once(self, uuid: str) -> str | None:
        plan = plan_removal(read_tree(self._client, uuid))
        for writes in _batches(plan.writes):
            self._write(writes)
        for provider in plan.deletions:
            self._client.delete_provider(provider)
        return plan.obstacle

    def _write(self, writes: tuple[ConsumerWrite, ...]) -> None:
        """Write consumers; those that are not written in time are written in halves."""
        try:
            self._client.write_consumers(writes)
        except PlacementTimeoutError:
            if len(writes) == 1:
                raise
            middle = len(writes) // 2
            self._write(writes[:middle])
            self._write(writes[middle:])


def _batches(writes: tuple[ConsumerWrite, ...]) -> Iterator[tuple[ConsumerWrite, ...]]:
    for start in range(0, len(writes), _MAX_WRITES):
        yield writes[start : start + _MAX_WRITES]


class HostRemovals(PeriodicTasks):
    """Removes the providers of one host's deleted nodes: observes its agent's audits.

    Attributes:
        requests: of a removal before the interval ends.
    """

    def __init__(self, host: str, remover: ProviderRemover, store: HostStore) -> None:
        super().__init__()
        self.requests = Wakeup()
        self._query = RemovalQuery(host=host)
        self._host = host
        self._remover = remover
        self._store = store
        self._warnings: tuple[HostWarning, ...] | None = None
        self._outages = OutageLog(_WHAT, NodetrackerError, LOG)
        self._running = threading.Lock()

    def audited(self, report: AuditReport) -> None:
        """Remove the providers of nodes that an audit deleted, soon."""
        if any(change.kind is ChangeKind.DELETE for change in report.changes):
            self.requests.request()

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def remove_providers(self, context: object = None) -> None:
        """Attempt what is due; an outage is one log line."""
        with self._running:
            self._outages.run(_ACTIVITY, self.work)

    def work_once(self, timeout_seconds: float) -> None:
        run_within(timeout_seconds, "placement-removals", self.remove_providers)

    def stop(self, timeout_seconds: float) -> bool:
        """Attempt no further removal; return whether the running one ended in time."""
        return self._running.acquire(timeout=max(0.0, timeout_seconds))

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


class UnservedRemovals(PeriodicTasks):
    """Removes the providers of deleted nodes of hosts without an agent, by any other process."""

    def __init__(self, remover: ProviderRemover, store: HostStore) -> None:
        super().__init__()
        self._remover = remover
        self._store = store
        self._outages = OutageLog(_WHAT, NodetrackerError, LOG)

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def remove_providers(self, context: object = None) -> None:
        """Attempt what is due; an outage is one log line."""
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
