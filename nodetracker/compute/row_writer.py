"""Write the rows of nodes that were read: load, account, plan, apply."""

import uuid as uuid_module
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from nodetracker.accounting.audit.planner import plan, plan_delete
from nodetracker.accounting.audit.view import account
from nodetracker.compute.audit_run import AuditRun
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.missing_guests import MissingGuestTracker
from nodetracker.compute.reading import NodeReading
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.errors import ConflictError, SchemaError, StoreError, StoreUnavailableError
from nodetracker.model.node import NodeView, failed_snapshot
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey, AgentStore
from nodetracker.process.loops import Progress

BATCH_SIZE = 100
"""Limit of nodes that one transaction writes."""

MAX_CONFLICT_ROUNDS = 3

_NOT_LISTED = "the node is no longer listed"


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

    @property
    def policy(self) -> Policy:
        """The policy by which nodes are accounted now."""
        return self._settings.policy

    def reconfigure(self, settings: AgentSettings) -> None:
        """Write by other settings from now on."""
        self._settings = settings

    def take_changes(self) -> tuple[NodeChange, ...]:
        """Return the changes that were committed since the last call."""
        changes, self._unreported = tuple(self._unreported), []
        return changes

    def load(self, agent: AgentKey) -> datetime:
        """See `HostRows.load`."""
        self._progress.note()
        return self._rows.load(agent)

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
        pending = {n: NodeReading(failed_snapshot(n, "driver", _NOT_LISTED)) for n in nodenames}
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
        now = self.load(run.agent)
        self._rows.load_expired_claims(
            run.agent.host,
            {
                name: [guest.uuid for guest in listing.guests]
                for name, reading in readings.items()
                if (listing := reading.snapshot.guests.value) is not None
            },
        )
        listed_at = self._rows.time_at(run.started_at)
        views = {
            name: account(
                reading.snapshot,
                self._rows.get(name),
                policy,
                now,
                self._missing_guests.listing_time(reading, listed_at, self._rows.time_at),
            )
            for name, reading in readings.items()
        }
        uuids = {
            name: view.uuid or _derive_uuid(run.agent, name)
            for name, view in views.items()
            if name not in self._rows
        }
        changes = plan(run.agent.host, views.values(), self._rows, uuids, now)
        return views, self._apply(run, changes)

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
        for nodename, reason in result.refused.items():
            run.refuse(WarningKind.NODE_UUID_REFUSED, nodename, reason)
        for change in batch:
            if change.nodename in result.conflicts or change.nodename in result.refused:
                continue
            record = self._rows.get(change.nodename)
            has_moved_here = change.record is None and record is not None and record.generation > 1
            if change.kind is ChangeKind.DELETE or has_moved_here:
                # A row that moved here from another host may have claims: it is read again.
                self._rows.forget(change.nodename)
            self._unreported.append(change)
        return set(result.conflicts)

    @staticmethod
    def _give_up(run: AuditRun, nodenames: Mapping[str, NodeReading]) -> None:
        for name in nodenames:
            run.errors[name] = f"its row was changed by others {MAX_CONFLICT_ROUNDS} times in a row"


def _derive_uuid(agent: AgentKey, nodename: str) -> str:
    return str(uuid_module.uuid5(uuid_module.UUID(agent.agent_id), nodename))
