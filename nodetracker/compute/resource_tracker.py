"""Track the resources of one host: list its nodes, read them, write their rows, delete orphans."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.accounting.audit.inventory import unusable_cpu_sets
from nodetracker.accounting.audit.provider_config import (
    check_configs,
    check_reported_specs,
    list_unused_configs,
)
from nodetracker.compute.audit_queue import AuditQueue, NodeReading, ReadingBatch
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.node_reader import NodeReader
from nodetracker.compute.row_writer import AuditRun, MissingGuestTracker, RowWriter
from nodetracker.compute.warning_registry import WarningRegistry
from nodetracker.model.audit import AllNodes, AuditReport
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.errors import ConfigError, DriverUnavailableError
from nodetracker.model.node import NOT_LISTED, KnownNode, NodeListing, NodeRecord
from nodetracker.model.service import HostNews
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, AgentKey, Driver, HostStore
from nodetracker.process.clock import DatabaseClock, utc_clock
from nodetracker.process.loops import Progress


def require_online_cpus(readings: Sequence[NodeReading], policy: Policy) -> None:
    """Check that the configured CPU sets leave each node a CPU.

    Raises:
        ConfigError: no CPU of a set is online; the message names option and node.
    """
    for reading in readings:
        cpu = reading.snapshot.cpu.value
        if cpu is None:
            continue
        for option, lacking, none_left in unusable_cpu_sets(cpu.online, policy):
            if none_left:
                raise ConfigError(
                    f"[compute] {option}: none of {render_cpu_set(lacking)} is online "
                    f"on node {reading.nodename}"
                )


def require_consistent(policy: Policy, nodes: Iterable[NodeRecord]) -> None:
    """Check the policy against all nodes of the host.

    Raises:
        ConfigError: two entries of provider.yaml files are for one node, or device
            specs contradict each other on a card that is reported to placement.
    """
    for node in nodes:
        check_configs(policy.providers, [node])
        if policy.pci.report_in_placement:
            check_reported_specs(policy.pci.specs, node.devices.values())


LOG = logging.getLogger(__name__)

ORPHAN_AUDITS = 2
"""Complete audits that must miss a node before its row is deleted."""

NOT_REACHABLE = "the node is not listed, and not every source answers"
"""Reason for which the facts of a waiting node are held."""

_WAITS = "not listed; its row is kept until every source answers"
_HOLDS_CLAIMS = "no longer listed; its row is kept because it holds claims"


@dataclass(frozen=True, slots=True)
class Orphans:
    """Rows whose nodes one listing lacks, by nodename.

    Attributes:
        waiting: not listed, but not every source answers.
        missed: not listed for the first time.
        kept: no longer listed, but they hold claims, so their rows are kept.
        gone: those of `kept` that enough audits missed: their facts are unknown.
        due: missed by enough audits; their rows are deleted.
    """

    waiting: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    due: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[HostWarning]:
        """Warnings of the rows that are kept."""
        kept = [(name, _WAITS) for name in self.waiting]
        kept += [(name, _HOLDS_CLAIMS) for name in self.kept]
        return [
            HostWarning(WarningKind.ORPHAN_NODE_KEPT, name, NO_ITEM, text) for name, text in kept
        ]

    @property
    def errors(self) -> dict[str, str]:
        """Why the nodes of `kept` are not fine."""
        return dict.fromkeys(self.kept, f"driver: {NOT_LISTED}")

    def log(self) -> None:
        """Log the rows that were deleted and those that are next."""
        for name in self.missed:
            LOG.warning(
                "Node %s is not listed; its row is deleted if the next audit misses it too", name
            )
        for name in self.due:
            LOG.info("Node %s is no longer listed; its row is deleted", name)


class OrphanTracker:
    """Counts for each node the consecutive complete audits that missed it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def evaluate(self, listing: NodeListing, rows: Mapping[str, NodeRecord]) -> Orphans:
        """Count a listing and return the rows that it lacks."""
        orphans = sorted(rows.keys() - set(listing.nodenames))
        if listing.unreachable:
            return Orphans(waiting=tuple(orphans))
        self._counts = {name: self._counts.get(name, 0) + 1 for name in orphans}
        kept = tuple(name for name in orphans if _has_claims(rows[name]))
        left = [name for name in orphans if name not in kept]
        return Orphans(
            missed=tuple(name for name in left if self._counts[name] == 1),
            kept=kept,
            gone=tuple(name for name in kept if self._counts[name] >= ORPHAN_AUDITS),
            due=tuple(name for name in left if self._counts[name] >= ORPHAN_AUDITS),
        )


def _as_known(record: NodeRecord) -> KnownNode:
    fact = record.values.facts.get("hypervisor")
    return KnownNode(record.nodename, record.uuid, "" if fact is None else fact.source)


def _has_claims(record: NodeRecord) -> bool:
    return any(claim.is_active for claim in record.claims.values())


class ResourceTracker:
    """Keeps one true row per node of one host.

    It remembers what it last read from or committed to the store, so a steady
    audit costs one statement; the next audit computes again whatever a crash or
    an outage interrupts. Audits must not run concurrently: the one that runs is
    the only reader of the queue, and reads and writes nodes whose events become
    due meanwhile, too.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.
        queue: gets the events of nodes; readings of nodes are put on it. Its
            timer counts the same seconds as `monotonic`.
        progress: noted at each step of an audit.
    """

    def __init__(
        self,
        settings: AgentSettings,
        driver: Driver,
        store: HostStore,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_clock,
        queue: AuditQueue | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._store = store
        self._monotonic = monotonic
        self._queue = queue or AuditQueue()
        self._progress = progress or Progress()
        self._rows = HostRows(store, monotonic, clock)
        self._reader = NodeReader(
            driver, self._queue, settings.probe_timeout, settings.max_concurrent_audits
        )
        self._writer = RowWriter(
            settings, store, self._rows, MissingGuestTracker(self._queue), self._progress
        )
        self._warnings = WarningRegistry(store, self._rows)
        self._orphans = OrphanTracker()
        self._errors: dict[str, str] = {}
        self._listing_error: str | None = None
        self._is_driver_ready = True

    @property
    def database_clock(self) -> DatabaseClock:
        """The database's time, as last loaded."""
        return self._rows.database_clock

    def prepare_events(self) -> None:
        """Start the thread that reads the nodes of events; raises ExhaustedError."""
        self._reader.prepare_events()

    def read_known(self) -> HostNews:
        rows = self._rows
        generations = {record.nodename: record.generation for record in rows.list_records()}
        return HostNews(generations, admin=rows.admin if rows.is_loaded else None)

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of this host's claims."""
        settings = self._settings
        return AdmissionPolicy(
            settings.service_down_time,
            settings.policy.claim_timeout,
            settings.is_packing_cells,
            settings.policy.pci.aliases,
        )

    @contextmanager
    def instance_claim(self, request: ClaimRequest, nodename: str | None = None) -> Iterator[Claim]:
        """Claim a workload's resources while its guest is created; an exception aborts the claim.

        Without an exception the caller confirms the claim, or the audit that
        finds the guest does.

        Args:
            nodename: None = the request's node, or the host's only node.

        Raises:
            ClaimRefusedError, ClaimConflictError: see `LedgerStore.create_claim`.
            RefusedError: the host has several nodes and none is named, or the
                claim was granted before and is released already.
        """
        from nodetracker.usecases.scheduler import Scheduler  # audits do not need it

        own = replace(request, host=self._settings.host, nodename=nodename or request.nodename)
        claim = Scheduler(self._store, self.policy).create_claim(own)
        try:
            yield claim
        except BaseException:
            self._store.abort_claim(claim.uuid)
            raise

    def check(self, settings: AgentSettings) -> None:
        """Check other settings against the nodes as they are known.

        Raises:
            ConfigError: as `require_consistent`.
        """
        require_consistent(settings.policy, self._rows.list_records())

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings from the next audit on."""
        self._settings = settings
        self._reader.change_timeout(settings.probe_timeout)
        self._writer.reconfigure(settings)

    def invalidate(self) -> None:
        """Read all rows again in the next audit; see `HostRows.invalidate`."""
        self._rows.invalidate()

    def audit(
        self, agent: AgentKey, startup: bool = False, known_warnings: Sequence[HostWarning] = ()
    ) -> AuditReport:
        """Bring every row of the host up to date.

        A node, probe or row that fails never stops the others.

        Args:
            startup: whether to check the configuration against the nodes as well.
            known_warnings: warnings that the caller found.

        Raises:
            ConfigError: at startup, when the configuration leaves a node
                without CPUs, or two sources report one nodename.
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not answer; the next audit repeats the work.
        """
        policy = self._settings.policy
        run = AuditRun(agent, self._monotonic())
        if not self._rows.is_loaded:
            self._progress.note()
            self._rows.load(agent)
        listing = self._list_nodes()
        if isinstance(listing, DriverUnavailableError):
            self._writer.write_failed(run, self._rows, listing.source, listing.reason)
            run.note_unlisted()
        else:
            for readings in self._read(listing.nodenames):
                if startup:
                    require_online_cpus(readings, policy)
                self._writer.write(run, readings)
            self._reconcile_orphans(run, listing)
        run.warnings += known_warnings
        if startup:
            require_consistent(policy, self._rows.values())
        run.warnings += list_unused_configs(policy.providers, self._rows.values())
        run.warnings += self._warnings.list_host_warnings(agent.host, self._listing_error)
        self._errors = run.errors
        return self._report(run)

    def audit_nodes(
        self,
        agent: AgentKey,
        nodenames: Collection[str],
        known_warnings: Sequence[HostWarning] = (),
    ) -> AuditReport:
        """Bring the rows of some nodes up to date, as `audit` does for all.

        Nodes without a row lead to an audit of all, as only that lists the nodes.

        Raises: as `audit`, but for the configuration.
        """
        if not self._rows.is_loaded or not set(nodenames) <= self._rows.keys():
            return self.audit(agent, known_warnings=known_warnings)
        run = AuditRun(agent, self._monotonic())
        for readings in self._read(nodenames, are_urgent=True):
            self._writer.write(run, readings)
        run.warnings += [warning for warning in known_warnings if warning.nodename in run.read]
        run.warnings += self._warnings.list_kept(agent.host, run.read)
        self._errors = {n: e for n, e in self._errors.items() if n not in run.read} | run.errors
        return self._report(run, frozenset(run.read))

    def _list_nodes(self) -> NodeListing | DriverUnavailableError:
        try:
            listing = self._driver.get_available_nodes()
            missing = self._rows.keys() - set(listing.nodenames)
            if missing and not self._rows.keys() >= set(listing.nodenames):
                self._driver.keep_names([_as_known(self._rows[name]) for name in sorted(missing)])
                listing = self._driver.get_available_nodes()
        except DriverUnavailableError as error:
            self._is_driver_ready, self._listing_error = False, str(error)
            return error
        self._is_driver_ready = listing.is_ready
        self._listing_error = "; ".join(listing.unreachable) or None
        return listing

    def _read(
        self, nodenames: Collection[str], are_urgent: bool = False
    ) -> Iterator[list[NodeReading]]:
        """Read nodes, and those whose events become due meanwhile; return them in batches.

        The event of a node that is being read remains queued for the next audit. So do
        all events once the audit's own nodes are read, so that a storm cannot prolong it.
        A node whose reading still waits for a thread is read for its event.
        """
        own, late = set(nodenames), set[str]()
        batch = ReadingBatch(self._queue.timer)

        def is_wanted(node: str | AllNodes) -> bool:
            if not own or node in late or not isinstance(node, str) or node not in self._rows:
                return False
            return node not in own or self._reader.is_waiting(node)

        self._reader.discard_earlier()
        self._start(nodenames, are_urgent)
        if not own:
            yield []
        while own or late or batch:
            self._progress.note()
            work = self._queue.take(min(batch.due_at, self._reader.next_timeout), is_wanted)
            late |= work.events.nodenames
            self._start(work.events.nodenames, are_urgent=True)
            for reading in self._reader.accept(work.readings):
                own.discard(reading.nodename)
                late.discard(reading.nodename)
                batch.add(reading)
            if batch.is_due(is_reading=bool(own or late)):
                yield batch.take()

    def _start(self, nodenames: Collection[str], are_urgent: bool) -> None:
        for name in nodenames:
            self._reader.start(name, self._queue.list_deleted(name), are_urgent)

    def _reconcile_orphans(self, run: AuditRun, listing: NodeListing) -> None:
        """Keep or delete the rows of nodes that a listing lacks."""
        orphans = self._orphans.evaluate(listing, self._rows)
        self._writer.delete(run, orphans.due)
        if orphans.waiting:
            self._writer.write_failed(run, orphans.waiting, "driver", NOT_REACHABLE)
        run.warnings += orphans.warnings
        run.errors |= orphans.errors
        if orphans.gone:
            self._writer.write_gone(run, orphans.gone)
        orphans.log()

    def _report(self, run: AuditRun, read: frozenset[str] | None = None) -> AuditReport:
        run.warnings += self._warnings.list_remaining(run, self._listing_error is None)
        self._warnings.sync(run.agent, run.warnings)
        return AuditReport(
            nodes=dict(self._rows),
            admin=self._rows.admin,
            changes=self._writer.take_changes(),
            errors=dict(self._errors),
            listing_error=self._listing_error,
            is_driver_ready=self._is_driver_ready,
            read=read,
            has_driver_uuids=run.has_driver_uuids,
            warnings=tuple(sorted(run.warnings)),
            clock_skew_seconds=self._rows.clock_skew_seconds,
            duration_seconds=self._monotonic() - run.started_at,
        )
