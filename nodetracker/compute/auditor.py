"""Audit a host: list its nodes, read them, write their rows, delete orphan rows, report."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from nodetracker.accounting.audit.provider_config import list_unused_configs
from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.audit_run import AuditRun
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.node_reader import NodeReader
from nodetracker.compute.orphans import NOT_REACHABLE, OrphanTracker
from nodetracker.compute.reading import NodeReading, ReadingBatch
from nodetracker.compute.row_writer import RowWriter
from nodetracker.compute.start_check import require_consistent, require_online_cpus
from nodetracker.compute.warning_registry import WarningRegistry
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import DriverUnavailableError
from nodetracker.model.event import AllNodes
from nodetracker.model.node import NodeListing
from nodetracker.model.settings import Policy
from nodetracker.model.warning import HostWarning
from nodetracker.ports import AgentKey, Driver
from nodetracker.process.loops import Progress

_Batches = Iterator[list[NodeReading]]


@dataclass(slots=True)
class Auditor:
    """Runs the audits of one host, one at a time.

    It is the only reader of the queue while an audit runs: nodes whose events
    become due meanwhile are read and written by the same audit.
    """

    driver: Driver
    queue: AuditQueue
    reader: NodeReader
    rows: HostRows
    writer: RowWriter
    warnings: WarningRegistry
    progress: Progress
    monotonic: Callable[[], float]
    _orphans: OrphanTracker = field(default_factory=OrphanTracker)
    _errors: dict[str, str] = field(default_factory=dict)
    _listing_error: str | None = None
    _is_driver_ready: bool = True

    def audit(
        self, agent: AgentKey, known_warnings: Sequence[HostWarning], startup: Policy | None = None
    ) -> AuditReport:
        """Bring all rows of the host up to date, and check the policy of a start against them."""
        run = AuditRun(agent, self.monotonic())
        if not self.rows.is_loaded:
            self.writer.load(agent)
        listing = self._list_nodes()
        if isinstance(listing, DriverUnavailableError):
            self.writer.write_failed(run, self.rows, listing.source, listing.reason)
            run.note_unlisted()
        else:
            for readings in self._read(listing.nodenames):
                if startup is not None:
                    require_online_cpus(readings, startup)
                self.writer.write(run, readings)
            self._reconcile_orphans(run, listing)
        run.warnings += known_warnings
        if startup is not None:
            require_consistent(startup, self.rows.values())
        run.warnings += list_unused_configs(self.writer.policy.providers, self.rows.values())
        run.warnings += self.warnings.list_host_warnings(agent.host, self._listing_error)
        self._errors = run.errors
        return self._report(run)

    def audit_nodes(
        self, agent: AgentKey, nodenames: Collection[str], known_warnings: Sequence[HostWarning]
    ) -> AuditReport:
        """Bring some rows up to date, or all if one of the nodes has no row yet."""
        if not self.rows.is_loaded or not set(nodenames) <= self.rows.keys():
            return self.audit(agent, known_warnings)
        run = AuditRun(agent, self.monotonic())
        for readings in self._read(nodenames, are_urgent=True):
            self.writer.write(run, readings)
        run.warnings += [warning for warning in known_warnings if warning.nodename in run.read]
        run.warnings += self.warnings.list_kept(agent.host, run.read)
        self._errors = {n: e for n, e in self._errors.items() if n not in run.read} | run.errors
        return self._report(run, frozenset(run.read))

    def _list_nodes(self) -> NodeListing | DriverUnavailableError:
        try:
            listing = self.driver.get_available_nodes()
        except DriverUnavailableError as error:
            self._is_driver_ready, self._listing_error = False, str(error)
            return error
        self._is_driver_ready = listing.is_ready
        self._listing_error = "; ".join(listing.unreachable) or None
        return listing

    def _read(self, nodenames: Collection[str], are_urgent: bool = False) -> _Batches:
        """Read nodes, and those whose events become due meanwhile; return them in batches.

        The event of a node that is being read remains queued for the next audit. So do
        all events once the audit's own nodes are read, so that a storm cannot prolong it.
        A node whose reading still waits for a thread is read for its event.
        """
        own, late = set(nodenames), set[str]()
        batch = ReadingBatch(self.queue.timer)

        def is_wanted(node: str | AllNodes) -> bool:
            if not own or node in late or not isinstance(node, str) or node not in self.rows:
                return False
            return node not in own or self.reader.is_waiting(node)

        self.reader.discard_earlier()
        self._start(nodenames, are_urgent)
        if not own:
            yield []
        while own or late or batch:
            self.progress.note()
            work = self.queue.take(min(batch.due_at, self.reader.next_timeout), is_wanted)
            late |= work.events.nodenames
            self._start(work.events.nodenames, are_urgent=True)
            for reading in self.reader.accept(work.readings):
                own.discard(reading.nodename)
                late.discard(reading.nodename)
                batch.add(reading)
            if batch.is_due(is_reading=bool(own or late)):
                yield batch.take()

    def _start(self, nodenames: Collection[str], are_urgent: bool) -> None:
        for name in nodenames:
            self.reader.start(name, self.queue.list_deleted(name), are_urgent)

    def _reconcile_orphans(self, run: AuditRun, listing: NodeListing) -> None:
        """Keep or delete the rows of nodes that a listing lacks."""
        orphans = self._orphans.evaluate(listing, self.rows)
        self.writer.delete(run, orphans.due)
        if orphans.waiting:
            self.writer.write_failed(run, orphans.waiting, "driver", NOT_REACHABLE)
        run.warnings += orphans.warnings
        run.errors |= orphans.errors
        if orphans.gone:
            self.writer.write_gone(run, orphans.gone)
        orphans.log()

    def _report(self, run: AuditRun, read: frozenset[str] | None = None) -> AuditReport:
        run.warnings += self.warnings.list_unseen(run, self._listing_error is None)
        self.warnings.sync(run.agent, run.warnings)
        return AuditReport(
            nodes=dict(self.rows),
            admin=self.rows.admin,
            changes=self.writer.take_changes(),
            errors=dict(self._errors),
            listing_error=self._listing_error,
            is_driver_ready=self._is_driver_ready,
            read=read,
            has_driver_uuids=run.has_driver_uuids,
            warnings=tuple(sorted(run.warnings)),
            clock_skew_seconds=self.rows.clock_skew_seconds,
            duration_seconds=self.monotonic() - run.started_at,
        )
