"""One audit: read, load, account, plan, apply, report.

The tracker remembers what it last read from or committed to the store, so a
steady audit costs one statement; whatever a crash or an outage interrupts is
computed afresh by the next audit.
"""

import logging
import time
import uuid as uuid_module
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from nodetracker.accounting.audit.inventory import unusable_cpu_sets
from nodetracker.accounting.audit.planner import plan, plan_delete
from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.grants import require_active
from nodetracker.clock import DatabaseClock, utc_clock
from nodetracker.compute.audit_run import AuditRun
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.missing_guests import MissingGuestTracker
from nodetracker.compute.node_reader import NodeReader, TakeUrgent
from nodetracker.compute.node_resolution import find_node
from nodetracker.compute.orphans import OrphanTracker
from nodetracker.compute.warning_registry import WarningRegistry, explain_split_brain
from nodetracker.cpuset import render_cpu_set
from nodetracker.errors import (
    ConfigError,
    ConflictError,
    DriverUnavailableError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.node import HostSnapshot, NodeListing, NodeRecord, NodeView, failed_snapshot
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, AgentKey, Driver, HostStore
from nodetracker.settings import AgentSettings

LOG = logging.getLogger(__name__)

BATCH_SIZE = 100
"""The most nodes that one transaction writes."""

MAX_CONFLICT_ROUNDS = 3

_WAITS = "the node is not listed, and not every source answers"
_GONE = "the node is not listed any more"


def _ignore() -> None:
    """Tell nobody."""


class ResourceTracker:
    """Keeps one true row per node of one host.

    Not safe for several threads: one audit at a time, by whoever owns it.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.
    """

    def __init__(
        self,
        settings: AgentSettings,
        driver: Driver,
        store: HostStore,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_clock,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._store = store
        self._monotonic = monotonic
        self._progress: Callable[[], None] = _ignore
        self._rows = HostRows(store, monotonic, clock)
        self._warnings = WarningRegistry(store)
        self._told_loads = 0
        self._orphans = OrphanTracker()
        self._missing_guests = MissingGuestTracker()
        self._errors: dict[str, str] = {}
        self._listing_error: str | None = None
        self._is_driver_ready = True
        self._unreported: list[NodeChange] = []
        self._reader = NodeReader(driver, settings.probe_timeout, settings.max_concurrent_audits)
        self._reader.begins = self._missing_guests.begin

    @property
    def database_clock(self) -> DatabaseClock:
        """The database's time as the last audit was told it."""
        return self._rows.database_clock

    def reconfigure(self, settings: AgentSettings) -> None:
        """Run the next audit by other settings."""
        self._settings = settings
        self._reader.probe_timeout = settings.probe_timeout

    def watch_progress(self, progress: Callable[[], None]) -> None:
        """Call something at each step of an audit; every step is bounded in time."""
        self._progress = self._reader.progress = progress

    def watch_events(self, take_urgent: TakeUrgent) -> None:
        """Ask for nodes that events concern while an audit waits for slow ones."""
        self._reader.take_urgent = take_urgent

    def mark_deleted(self, gone: Mapping[str, Collection[str]]) -> None:
        """Take note of guests that were undefined or destroyed, until a listing has judged it.

        Args:
            gone: nodename -> their uuids.
        """
        self._missing_guests.mark_deleted(gone)

    def audit_nodes(self, agent: AgentKey, nodenames: Collection[str]) -> AuditReport:
        """Bring the rows of some nodes up to date, as `audit` does for all.

        One that has no row yet is for `audit`, as only that lists the nodes.

        Raises: as `audit`, but for the configuration.
        """
        if not self._rows.is_loaded or not set(nodenames) <= self._rows.keys():
            return self.audit(agent)
        named = frozenset(nodenames)
        run = AuditRun(agent, (), self._monotonic())
        for snapshots in self._read(sorted(named)):
            self._write(run, snapshots)
        run.warnings += [w for w in self._warnings.standing if w.nodename not in named]
        run.warnings += [
            explain_split_brain(found)
            for found in self._rows.split_brains
            if found.nodename in named
        ]
        self._errors = {n: e for n, e in self._errors.items() if n not in named} | run.errors
        return self._report(run, named)

    def audit(
        self, agent: AgentKey, startup: bool = False, standing: Sequence[HostWarning] = ()
    ) -> AuditReport:
        """Bring every row of the host up to date.

        A node, probe or row that fails never stops the others.

        Args:
            startup: the configuration is judged against the nodes as well.
            standing: warnings that the caller knows of.

        Raises:
            ConfigError: at startup, when the configuration leaves a node
                without CPUs, or two sources give one nodename.
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not take it; nothing is lost.
        """
        run = AuditRun(agent, standing, self._monotonic())
        if not self._rows.is_loaded:
            self._load(agent)
        unavailable: DriverUnavailableError | None = None
        try:
            listing = self._driver.get_available_nodes()
        except DriverUnavailableError as error:
            unavailable = error
        self._is_driver_ready = unavailable is None
        if unavailable is not None:
            self._listing_error = str(unavailable)
            self._write(run, self._failed_snapshots(unavailable))
        else:
            self._listing_error = "; ".join(listing.unreachable) or None
            for snapshots in self._read(listing.nodenames):
                if startup:
                    self._evaluate_configuration(snapshots)
                self._write(run, snapshots)
            self._reconcile_orphans(run, listing)
        if self._listing_error is not None:
            run.warnings.append(
                HostWarning(WarningKind.DRIVER_NOT_READY, "", "", self._listing_error)
            )
        run.warnings += self._warnings.evaluate_clock(self._rows.clock_skew_seconds or 0.0)
        run.warnings += [explain_split_brain(found) for found in self._rows.split_brains]
        self._errors = run.errors
        return self._report(run)

    def _report(self, run: AuditRun, read: frozenset[str] | None = None) -> AuditReport:
        loads = self._rows.full_loads
        self._warnings.tell(run.agent, run.warnings, is_due=loads != self._told_loads)
        self._told_loads = loads
        changes, self._unreported = tuple(self._unreported), []
        return AuditReport(
            nodes=dict(self._rows),
            changes=changes,
            errors=dict(self._errors),
            listing_error=self._listing_error,
            is_driver_ready=self._is_driver_ready,
            read=read,
            warnings=tuple(sorted(run.warnings)),
            clock_skew_seconds=self._rows.clock_skew_seconds,
            duration_seconds=self._monotonic() - run.began,
        )

    # Claims.

    @property
    def policy(self) -> AdmissionPolicy:
        """What this host's claims go by."""
        settings = self._settings
        return AdmissionPolicy(
            settings.service_down_time,
            settings.claim_timeout,
            settings.is_packing_cells,
            settings.policy.pci.aliases,
        )

    @contextmanager
    def instance_claim(self, request: ClaimRequest, nodename: str | None = None) -> Iterator[Claim]:
        """Hold what a workload asks for while its guest is made; an exception gives it back.

        Whoever leaves without one confirms the claim or lets the audit do so
        that sees the guest.

        Args:
            nodename: None = the request's own, or the host's only node.

        Raises:
            ClaimRefusedError, ClaimConflictError: see `Store.create_claim`.
            RefusedError: the host has several nodes and none is named, or the
                claim was granted before and is released by now.
        """
        host = self._settings.host
        node = nodename or request.nodename or find_node(self._store, host).nodename
        claim = require_active(self._store.create_claim(request, host, node, self.policy))
        try:
            yield claim
        except BaseException:
            self._store.abort_claim(claim.uuid)
            raise

    # Read.

    def _failed_snapshots(self, error: DriverUnavailableError) -> list[HostSnapshot]:
        return [failed_snapshot(name, error.source, error.reason) for name in self._rows]

    def _read(self, nodenames: Sequence[str]) -> Iterator[list[HostSnapshot]]:
        return self._reader.read(nodenames, lambda name: name in self._rows)

    def _load(self, agent: AgentKey) -> datetime:
        self._progress()
        return self._rows.load(agent)

    # Account, plan, apply.

    def _write(
        self, run: AuditRun, snapshots: Sequence[HostSnapshot], is_gone: bool = False
    ) -> None:
        policy = self._settings.policy
        if is_gone:  # what nobody can read any more is unknown at once
            policy = replace(policy, held_fact_expiry=-1)
        pending = {snapshot.nodename: snapshot for snapshot in snapshots}
        if not is_gone:
            run.forget(pending)
        for snapshot in snapshots:
            self._missing_guests.count(snapshot, self._rows.get(snapshot.nodename))
        for _ in range(MAX_CONFLICT_ROUNDS):
            now = self._load(run.agent)
            began_at = now - timedelta(seconds=self._monotonic() - run.began)
            views = {
                name: account(
                    snapshot,
                    self._rows.get(name),
                    policy,
                    now,
                    self._missing_guests.time(name, began_at),
                )
                for name, snapshot in pending.items()
            }
            uuids = {
                name: view.uuid or self._derive_uuid(run.agent, name)
                for name, view in views.items()
                if name not in self._rows
            }
            changes = plan(run.agent.host, views.values(), self._rows, uuids, now)
            has_reopened = any(
                _has_reopened(self._rows.get(name), view) for name, view in views.items()
            )
            conflicts = self._apply(run, changes)
            if has_reopened:
                self._rows.invalidate()  # a workload that came late may hold a claim elsewhere
            for name, view in views.items():
                if name not in conflicts and not is_gone:
                    run.note(view)
                    self._missing_guests.update(pending[name])
            pending = {name: pending[name] for name in conflicts}
            if not pending:
                return
        for name in pending:
            run.errors[name] = "its row was written by others again and again"

    def _apply(self, run: AuditRun, changes: Sequence[NodeChange]) -> set[str]:
        """Write changes in batches; return the nodes whose rows moved meanwhile."""
        conflicts: set[str] = set()
        for start in range(0, len(changes), BATCH_SIZE):
            conflicts |= self._apply_batch(run, changes[start : start + BATCH_SIZE])
        return conflicts

    def _apply_batch(self, run: AuditRun, batch: Sequence[NodeChange]) -> set[str]:
        self._progress()
        try:
            result = self._store.apply_changes(run.agent, batch, self._settings.service_down_time)
        except (ConflictError, SchemaError, StoreUnavailableError):
            raise
        except StoreError as error:
            # One value that the database refuses must not cost the other nodes their rows.
            if len(batch) == 1:
                run.refuse(WarningKind.ROW_REFUSED, batch[0].nodename, str(error))
                return set()
            middle = len(batch) // 2
            return self._apply_batch(run, batch[:middle]) | self._apply_batch(run, batch[middle:])
        # Remembered only now, after the commit.
        self._rows.remember(result.records)
        for nodename, reason in result.refused.items():
            run.refuse(WarningKind.NODE_UUID_REFUSED, nodename, reason)
        for change in batch:
            if change.nodename in result.conflicts or change.nodename in result.refused:
                continue
            record = self._rows.get(change.nodename)
            came = change.record is None and record is not None and record.generation > 1
            if change.kind is ChangeKind.DELETE or came:
                # A row that came from another host may have claims: it is read again.
                self._rows.forget(change.nodename)
            self._unreported.append(change)
        return set(result.conflicts)

    def _derive_uuid(self, agent: AgentKey, nodename: str) -> str:
        return str(uuid_module.uuid5(uuid_module.UUID(agent.agent_id), nodename))

    def _reconcile_orphans(self, run: AuditRun, listing: NodeListing) -> None:
        """Keep or delete the rows of nodes that a listing lacks."""
        orphans = self._orphans.evaluate(listing, self._rows)
        due = [plan_delete(self._rows[name]) for name in orphans.due]
        if orphans.waiting:
            self._write(run, [failed_snapshot(n, "driver", _WAITS) for n in orphans.waiting])
        run.warnings += orphans.warnings
        for name in orphans.kept:
            run.errors[name] = f"driver: {_GONE}"
        if orphans.gone:  # what is known of it counts no longer, so that it takes no more claims
            gone = [failed_snapshot(name, "driver", _GONE) for name in orphans.gone]
            self._write(run, gone, is_gone=True)
        for name in orphans.missed:
            LOG.warning(
                "Node %s is no longer there; its row goes if the next audit misses it too", name
            )
        self._apply(run, due)
        for change in due:
            LOG.info("Node %s is gone; its row has been deleted", change.nodename)

    # Judge and tell.

    def _evaluate_configuration(self, snapshots: Sequence[HostSnapshot]) -> None:
        for snapshot in snapshots:
            if snapshot.cpu.value is None:
                continue
            unusable = unusable_cpu_sets(snapshot.cpu.value.online, self._settings.policy)
            for option, lacking, none_left in unusable:
                if none_left:
                    raise ConfigError(
                        f"[compute] {option}: none of {render_cpu_set(lacking)} is online "
                        f"on node {snapshot.nodename}"
                    )


def _has_reopened(record: NodeRecord | None, view: NodeView) -> bool:
    """Tell whether a late guest took its expired claim up again."""
    before = {} if record is None else record.claims
    return any(
        claim.is_active and uuid in before and not before[uuid].is_active
        for uuid, claim in view.claims.items()
    )
