"""Send notifications of what audits change, and of other changes to the store."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from nodetracker.accounting.reports.notifications import (
    build_change_notifications,
    build_claim_notification,
    build_migration_notification,
    build_node_deleted_notification,
    build_raised_notifications,
    build_refusal_notification,
    build_service_notification,
    build_warning_notification,
)
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import Notification
from nodetracker.model.claim import Claim, ClaimRequest, Migration, MigrationStatus
from nodetracker.model.errors import ClaimRefusedError, StoreError
from nodetracker.model.service import COMPUTE_BINARY, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports import AdmissionPolicy, AgentKey, Notifier, Store
from nodetracker.ports.delegated_store import DelegatedStore

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class AuditNotifier:
    """`nodetracker.ports.AuditObserver`: notifies of what an agent's audits write and warn of.

    Resolved warnings are left to `NotifyingStore`: only the store knows them, as
    some were raised before this process started, or by others.
    """

    def __init__(self, host: str, notifier: Notifier) -> None:
        self._host = host
        self._notifier = notifier
        self._active: tuple[HostWarning, ...] = ()

    def audited(self, report: AuditReport) -> None:
        """Notify of one audit; one that was not stored changed nothing."""
        if report.store_error is not None:
            return
        for change in report.changes:
            for notification in build_change_notifications(change):
                self._notifier.notify(notification)
        for notification in build_raised_notifications(self._host, self._active, report.warnings):
            self._notifier.notify(notification)
        self._active = report.warnings


def notifying_store(store: Store, notifier: Notifier) -> Store:
    """Return a store that notifies of changes made through it, except those of audits."""
    return NotifyingStore(store, notifier)


class NotifyingStore(DelegatedStore):
    """`nodetracker.ports.Store` on top of another one, with notifications.

    Methods that are not overridden change nothing, or `AuditNotifier` reports
    their changes. Failures are not notified; refused claims are. A repeated call
    that finds the result of the first one is notified again.
    """

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return getattr(self._store, name)(*positional, **named)

    def create_claim(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Claim:
        """See `Store`."""
        claim = self._grant(self._store.create_claim, request, host, nodename, policy, skip_locked)
        self._notifier.notify(build_claim_notification(claim))
        return claim

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        claim = self._store.confirm_claim(uuid)
        self._notifier.notify(build_claim_notification(claim))
        return claim

    def abort_claim(self, uuid: str) -> Claim:
        """See `Store`; aborting a destination cancels its migration."""
        claim = self._store.abort_claim(uuid)
        self._notifier.notify(build_claim_notification(claim))
        moved_by = claim.migration_uuid
        if moved_by is not None:
            self._notify_read(
                lambda: map(
                    build_migration_notification, self._store.list_migrations(uuid=moved_by)
                )
            )
        return claim

    def create_migration(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Migration:
        """See `Store`."""
        migration = self._grant(
            self._store.create_migration, request, host, nodename, policy, skip_locked
        )
        return self._notify_move(migration, migration.dest_claim)

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        migration = self._store.confirm_migration(uuid)
        return self._notify_move(migration, migration.source_claim, migration.dest_claim)

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        migration = self._store.revert_migration(uuid)
        return self._notify_move(migration, migration.dest_claim)

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        return self._notify_move(self._store.set_migration_status(uuid, status))

    def register_agent(
        self,
        host: str,
        binary: str,
        topic: str,
        version: str,
        incarnation: Incarnation,
        expected: ServiceRecord | None,
        held_epoch: int = 0,
    ) -> ServiceRecord:
        """See `Store`."""
        record = self._store.register_agent(
            host, binary, topic, version, incarnation, expected, held_epoch
        )
        self._notifier.notify(build_service_notification(expected, record))
        return record

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """See `Store`."""
        before = next(iter(self._store.list_services(host, binary)), None)
        record = self._store.set_service(host, binary, change)
        self._notifier.notify(build_service_notification(before, record))
        return record

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """See `Store`."""
        before = self._store.list_services(host, binary)
        nodes = self._store.list_nodes(host) if binary == COMPUTE_BINARY else []
        self._store.delete_service(host, binary, service_down_time)
        for record in nodes:
            self._notifier.notify(build_node_deleted_notification(record))
        for service in before:
            self._notifier.notify(build_service_notification(service, None))

    def delete_node(self, host: str, nodename: str) -> None:
        """See `Store`."""
        before = self._store.list_nodes(host, nodename)
        self._store.delete_node(host, nodename)
        for record in before:
            self._notifier.notify(build_node_deleted_notification(record))

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """See `Store`."""
        moved = self._store.rename_host(old, new, binary, expected)
        self._notify_read(
            lambda: (
                build_service_notification(expected, found)
                for found in self._store.list_services(new, binary)
            )
        )
        return moved

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """See `Store`; notifies of resolved warnings."""
        return self._notify_resolved(self._store.sync_warnings(agent, active))

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """See `Store`."""
        self._store.raise_warning(host, warning)
        self._notifier.notify(build_warning_notification("warning.raise", host, warning))

    def resolve_warnings(
        self, kind: WarningKind, hosts: Collection[str] | None = None
    ) -> list[WarningRecord]:
        """See `Store`."""
        return self._notify_resolved(self._store.resolve_warnings(kind, hosts))

    def _grant(
        self,
        grant: Callable[[ClaimRequest, str, str, AdmissionPolicy, bool], T],
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool,
    ) -> T:
        try:
            return grant(request, host, nodename, policy, skip_locked)
        except ClaimRefusedError as error:
            self._notifier.notify(
                build_refusal_notification(request, host, nodename, error.reasons)
            )
            raise

    def _notify_resolved(self, resolved: list[WarningRecord]) -> list[WarningRecord]:
        for record in resolved:
            self._notifier.notify(
                build_warning_notification("warning.resolve", record.host, record.warning)
            )
        return resolved

    def _notify_move(self, migration: Migration, *claims: str) -> Migration:
        for uuid in claims:
            self._notify_read(partial(self._read_claim, uuid))
        self._notifier.notify(build_migration_notification(migration))
        return migration

    def _read_claim(self, uuid: str) -> Iterable[Notification]:
        return map(build_claim_notification, self._store.list_claims(uuid=uuid))

    def _notify_read(self, read: Callable[[], Iterable[Notification]]) -> None:
        """Send notifications that need another read; the change is stored even if that fails."""
        failure: StoreError | None = None
        try:
            for notification in read():
                self._notifier.notify(notification)
        except StoreError as error:
            failure = error
        if failure is not None:
            LOG.warning("Notifications of a change are incomplete: %s", failure)
