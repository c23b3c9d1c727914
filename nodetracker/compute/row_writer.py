"""Write the rows of nodes that were read: load, account, plan, apply."""

import logging
import uuid as uuid_module
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from nodetracker.accounting.audit.planner import is_settled, plan, plan_delete
from nodetracker.accounting.audit.view import account
from nodetracker.accounting.audit.warnings import LISTING
from nodetracker.accounting.ledger.reconcile import ListingEvidence, count_absences, list_moving
from nodetracker.compute.audit_queue import AuditQueue, NodeReading
from nodetracker.compute.host_rows import HostRows
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.errors import ConflictError, SchemaError, StoreError, StoreUnavailableError
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest, PartialGuest, PowerState
from nodetracker.model.node import (
    FACT_NAMES,
    NOT_LISTED,
    HostSnapshot,
    NodeRecord,
    NodeView,
    failed_snapshot,
)
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.ports import AgentKey, AgentStore
from nodetracker.process.loops import Progress

LOG = logging.getLogger(__name__)

_AnyGuest = TypeVar("_AnyGuest", Guest, PartialGuest)


class AuditRun:
    """One running audit.

    Args:
        started_at: moment of the tracker's monotonic clock.

    Attributes:
        errors: nodename -> the error of a node that is not fine.
        unread: nodename -> names of the facts that were not read, of each node that was read.
    """

    def __init__(self, agent: AgentKey, started_at: float) -> None:
        self.agent = agent
        self.started_at = started_at
        self.errors: dict[str, str] = {}
        self.warnings: list[HostWarning] = []
        self.unread: dict[str, frozenset[str]] = {}
        self.has_driver_uuids = False

    @property
    def read(self) -> Set[str]:
        """Names of the nodes that were read."""
        return self.unread.keys()

    def start_nodes(self, readings: Collection[NodeReading]) -> None:
        """Add nodes that were read, and forget the errors and warnings of earlier readings."""
        names = {reading.nodename for reading in readings}
        self.unread |= dict.fromkeys(names, frozenset(FACT_NAMES))  # until their views are known
        self.warnings = [w for w in self.warnings if w.nodename not in names]
        for name in names:
            self.errors.pop(name, None)

    def refuse(self, kind: WarningKind, nodename: str, reason: str, item: str = NO_ITEM) -> None:
        """Add the reason why a node's row was not written."""
        self.warnings.append(HostWarning(kind, nodename, item, reason))
        self.errors[nodename] = reason

    def note(self, view: NodeView) -> None:
        """Add the warnings and failed facts of a node."""
        self.warnings.extend(view.warnings)
        self.has_driver_uuids |= view.uuid is not None
        self.unread[view.nodename] = view.unread
        names_by_error: dict[str, list[str]] = {}
        for name, entry in sorted(view.values.facts.items()):
            if entry.state is not FactState.FRESH:
                names_by_error.setdefault(f"{entry.source}: {entry.error}", []).append(name)
        if names_by_error:
            errors = (f"{', '.join(names)}: {error}" for error, names in names_by_error.items())
            self.errors.setdefault(view.nodename, "; ".join(errors))

    def note_unlisted(self) -> None:
        """Add that the list of nodes could not be read either."""
        self.unread = {name: facts | {LISTING} for name, facts in self.unread.items()}


class MissingGuestTracker:
    """Counts listings that lacked guests, and decides which deletions a listing confirms.

    Args:
        queue: gets the events that report deletions.
    """

    def __init__(self, queue: AuditQueue) -> None:
        self._queue = queue
        self._counts: dict[str, dict[str, int]] = {}

    def count(self, reading: NodeReading, record: NodeRecord | None) -> None:
        """Count a listing that lacks guests of claims that were known before it."""
        known = [] if record is None else [c for c in record.claims.values() if c.is_active]
        before = self._counts.pop(reading.nodename, {})
        counts = count_absences(known, reading.snapshot.guests, before)
        if counts:
            self._counts[reading.nodename] = counts

    def evidence_of(
        self, reading: NodeReading, started_at: datetime, time_at: Callable[[float], datetime]
    ) -> ListingEvidence:
        """Return the times and counts by which a listing started at that time is evaluated.

        A guest that was defined or deleted again since the reading started is
        left to the next one.

        Args:
            time_at: the database's time at a moment.
        """
        counts = self._counts.get(reading.nodename, {})
        now = self._queue.list_deleted(reading.nodename)
        unchanged = reading.deleted_before.items() & now.items()
        return ListingEvidence(started_at, counts, {uuid: time_at(at) for uuid, at in unchanged})

    def switch_off_ended(self, readings: Mapping[str, NodeReading]) -> Mapping[str, NodeReading]:
        """Return readings in which the guests that have ended since they started are off."""
        if not self._queue.has_ends:
            return readings
        return {name: self._switch_off(reading) for name, reading in readings.items()}

    def _switch_off(self, reading: NodeReading) -> NodeReading:
        ended = self._queue.list_ended(reading.nodename, reading.started_at)
        guests = reading.snapshot.guests
        if not ended or guests.value is None:
            return reading
        off = PowerState.SHUTDOWN

        def switch_off(guest: _AnyGuest) -> _AnyGuest:
            return replace(guest, power_state=off) if guest.uuid in ended else guest

        listing = replace(
            guests.value,
            guests=tuple(map(switch_off, guests.value.guests)),
            partial=tuple(map(switch_off, guests.value.partial)),
        )
        snapshot = replace(reading.snapshot, guests=replace(guests, value=listing))
        return replace(reading, snapshot=snapshot)

    def update(self, reading: NodeReading, record: NodeRecord | None) -> None:
        """Forget the deletions that an accounted reading has decided on.

        One remains known while the row has a claim of the guest: the listing may
        have failed, and a held claim may be confirmed by command later.

        Args:
            record: the row as written.
        """
        if not reading.deleted_before:
            return
        guests = reading.snapshot.guests.value
        awaited: set[str] = set()
        if record is not None:
            awaited = {c.workload.uuid for c in record.claims.values() if c.is_active}
            awaited -= list_moving(record.moves)
            awaited -= guests.uuids if guests is not None else set()
        decided = {u: at for u, at in reading.deleted_before.items() if u not in awaited}
        self._queue.forget_deleted(reading.nodename, decided)


@dataclass(frozen=True, slots=True)
class SettledNode:
    """A node whose last reading changed nothing, and would not at any later time either.

    Attributes:
        record: the row that it was accounted with.
        view: the outcome.
    """

    snapshot: HostSnapshot
    record: NodeRecord
    policy: Policy
    view: NodeView


BATCH_SIZE = 100
"""Limit of nodes that one transaction writes."""

MAX_CONFLICT_ROUNDS = 3


class RowWriter:
    """Brings rows up to date with readings.

    It remembers what it committed: the next audit reads only rows that others
    changed, and reports changes whose own audit failed before its report.

    Args:
        rows: of the host; the writer keeps them up to date.
        progress: noted at each statement.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: AgentStore,
        rows: HostRows,
        missing_guests: MissingGuestTracker,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._store = store
        self._rows = rows
        self._missing_guests = missing_guests
        self._progress = progress
        self._unreported: list[NodeChange] = []
        self._settled: dict[str, SettledNode] = {}

    def reconfigure(self, settings: AgentSettings) -> None:
        """Write by other settings from now on."""
        self._settings = settings

    def take_changes(self) -> tuple[NodeChange, ...]:
        """Return the changes that were committed since the last call."""
        changes, self._unreported = tuple(self._unreported), []
        return changes

    def write(self, run: AuditRun, readings: Sequence[NodeReading]) -> None:
        """Write what readings change; a row that others change meanwhile is accounted again.

        Raises:
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not answer; what was committed is remembered.
        """
        run.start_nodes(readings)
        pending = {reading.nodename: reading for reading in readings}
        for reading in readings:
            self._missing_guests.count(reading, self._rows.get(reading.nodename))
        for _ in range(MAX_CONFLICT_ROUNDS):
            views, conflicts = self._write_once(run, pending, self._settings.policy)
            for name in [name for name in pending if name not in conflicts]:
                run.note(views[name])
                self._missing_guests.update(pending[name], self._rows.get(name))
            pending = {name: pending[name] for name in conflicts}
            if not pending:
                return
        self._give_up(run, pending)

    def write_failed(
        self, run: AuditRun, nodenames: Collection[str], source: str, reason: str
    ) -> None:
        """Write the rows of nodes that cannot be read, as `write` does."""
        snapshots = [failed_snapshot(name, source, reason) for name in nodenames]
        self.write(run, [NodeReading(snapshot) for snapshot in snapshots])

    def write_gone(self, run: AuditRun, nodenames: Sequence[str]) -> None:
        """Write rows of nodes that no longer exist: their facts become unknown immediately.

        So no more claims are admitted on them.

        Raises: as `write`.
        """
        policy = self._settings.policy.without_held_facts()
        pending = {n: NodeReading(failed_snapshot(n, "driver", NOT_LISTED)) for n in nodenames}
        for _ in range(MAX_CONFLICT_ROUNDS):
            _, conflicts = self._write_once(run, pending, policy)
            pending = {name: pending[name] for name in conflicts}
            if not pending:
                return
        self._give_up(run, pending)

    def delete(self, run: AuditRun, nodenames: Sequence[str]) -> None:
        """Delete rows, except those that others changed since the last load.

        Raises: as `write`.
        """
        self._apply(run, [plan_delete(self._rows[name]) for name in nodenames])

    def _write_once(
        self, run: AuditRun, readings: Mapping[str, NodeReading], policy: Policy
    ) -> tuple[dict[str, NodeView], set[str]]:
        """Load, account, plan, apply; return the views, and the nodes with a conflict."""
        self._progress.note()
        now = self._rows.load(run.agent)
        # After the load: an end that is known only later changes a row that is loaded again.
        readings = self._missing_guests.switch_off_ended(readings)
        views = {name: self._find_settled(reading, policy) for name, reading in readings.items()}
        changed = {name: reading for name, reading in readings.items() if views[name] is None}
        self._rows.load_expired_claims(
            run.agent.host,
            {
                name: [guest.uuid for guest in listing.guests]
                for name, reading in changed.items()
                if (listing := reading.snapshot.guests.value) is not None
            },
        )
        listed_at = self._rows.time_at(run.started_at)
        accounted = {
            name: self._account(run, reading, policy, now, listed_at)
            for name, reading in changed.items()
        }
        uuids = {
            name: view.uuid or _derive_uuid(run.agent, name)
            for name, view in accounted.items()
            if name not in self._rows
        }
        changes = plan(run.agent.host, accounted.values(), self._rows, uuids, now)
        for name in accounted.keys() - {change.nodename for change in changes}:
            self._settle(readings[name].snapshot, policy, accounted[name])
        found = accounted | {name: view for name, view in views.items() if view is not None}
        return found, self._apply(run, changes)

    def _account(
        self,
        run: AuditRun,
        reading: NodeReading,
        policy: Policy,
        now: datetime,
        listed_at: datetime,
    ) -> NodeView:
        """Account a node; one whose driver's values cannot be accounted has failed to be read."""
        row = self._rows.get(reading.nodename)
        evidence = self._missing_guests.evidence_of(reading, listed_at, self._rows.time_at)
        try:
            return account(reading.snapshot, row, policy, now, evidence)
        except Exception as error:  # of one node; the others are written
            LOG.exception("The reading of node %s cannot be accounted", reading.nodename)
            run.errors[reading.nodename] = reason = f"its reading cannot be accounted: {error!r}"
            failed = failed_snapshot(reading.nodename, "driver", reason)
            return account(failed, row, policy, now, evidence)

    def _find_settled(self, reading: NodeReading, policy: Policy) -> NodeView | None:
        """Return the view of a node whose reading, row and policy are those of the last audit.

        Another row, as when others changed it or all rows were read again, is another object.
        """
        known = self._settled.pop(reading.nodename, None)
        if (
            known is None
            or known.policy is not policy
            or known.record is not self._rows.get(reading.nodename)
            or known.snapshot != reading.snapshot
        ):
            return None
        self._settled[reading.nodename] = known
        return known.view

    def _settle(self, snapshot: HostSnapshot, policy: Policy, view: NodeView) -> None:
        record = self._rows.get(view.nodename)
        if record is not None and is_settled(view, record, snapshot.guests.value):
            # The row's own objects, which are equal, so that none are kept twice.
            same = replace(
                view,
                values=record.values,
                guests=record.guests,
                devices=record.devices,
                claims=record.claims,
            )
            self._settled[view.nodename] = SettledNode(snapshot, record, policy, same)

    def _apply(self, run: AuditRun, changes: Sequence[NodeChange]) -> set[str]:
        """Write changes in batches; return the nodes whose rows others changed meanwhile."""
        conflicts: set[str] = set()
        for start in range(0, len(changes), BATCH_SIZE):
            conflicts |= self._apply_batch(run, changes[start : start + BATCH_SIZE])
        return conflicts

    def _apply_batch(self, run: AuditRun, batch: Sequence[NodeChange]) -> set[str]:
        self._progress.note()
        try:
            result = self._store.apply_changes(run.agent, batch, self._settings.service_down_time)
        except (ConflictError, SchemaError, StoreUnavailableError):
            raise
        except StoreError as error:
            # A value that the database rejects must not keep other rows from being written.
            if len(batch) == 1:
                run.refuse(WarningKind.ROW_REFUSED, batch[0].nodename, str(error))
                return set()
            middle = len(batch) // 2
            return self._apply_batch(run, batch[:middle]) | self._apply_batch(run, batch[middle:])
        # Remembered only now, after the commit.
        self._rows.remember(result.records)
        for change in batch:
            if (reason := result.refused.get(change.nodename)) is not None:
                if change.nodename in result.misfits:
                    run.refuse(WarningKind.ROW_REFUSED, change.nodename, reason)
                else:
                    kind = WarningKind.NODE_UUID_REFUSED
                    run.refuse(kind, change.nodename, reason, change.uuid)
            elif change.nodename not in result.conflicts:
                if change.kind is ChangeKind.DELETE:
                    self._rows.forget(change.nodename)
                self._unreported.append(change)
        return set(result.conflicts)

    @staticmethod
    def _give_up(run: AuditRun, nodenames: Mapping[str, NodeReading]) -> None:
        for name in nodenames:
            run.errors[name] = f"its row was changed by others {MAX_CONFLICT_ROUNDS} times in a row"


def _derive_uuid(agent: AgentKey, nodename: str) -> str:
    return str(uuid_module.uuid5(uuid_module.UUID(agent.agent_id), nodename))
