"""Tells listeners what happens: what audits changed, and what is done to the store otherwise."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

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
from nodetracker.errors import ClaimRefusedError, StoreError
from nodetracker.model.audit import AuditReport
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.migration import Migration, MigrationStatus
from nodetracker.model.notification import Notification
from nodetracker.model.service import COMPUTE_BINARY, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports import AdmissionPolicy, AgentKey, Notifier, Store

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class AuditNotifier:
    """`nodetracker.ports.AuditObserver`: tells what an agent's audits wrote and warn of.

    Which warnings are over is known to the store alone, as some were raised
    before this process began or by others; `NotifyingStore` tells it.
    """

    def __init__(self, host: str, notifier: Notifier) -> None:
        self._host = host
        self._notifier = notifier
        self._standing: tuple[HostWarning, ...] = ()

    def audited(self, report: AuditReport) -> None:
        """Tell of one audit; one that was not stored changed nothing."""
        if report.store_error is not None:
            return
        for change in report.changes:
            for notification in build_change_notifications(change):
                self._notifier.notify(notification)
        for notification in build_raised_notifications(self._host, self._standing, report.warnings):
            self._notifier.notify(notification)
        self._standing = report.warnings


def notifying_store(store: Store, notifier: Notifier) -> Store:
    """Return a store that tells what is done to it, but for the agents' audits."""
    return cast(Store, NotifyingStore(store, notifier))


class NotifyingStore:
    """`nodetracker.ports.Store` round another one; what fails is not told, a refused claim is.

    What is asked again and finds its own result is told again.
    """

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier

    def __getattr__(self, name: str) -> Any:
        """Return a method that changes nothing, or what `AuditNotifier` tells."""
        return getattr(self._store, name)

    def create_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Claim:
        """See `Store`."""
        claim = self._grant(self._store.create_claim, request, host, nodename, policy)
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
            self._tell_read(
                lambda: map(
                    build_migration_notification, self._store.list_migrations(uuid=moved_by)
                )
            )
        return claim

    def create_migration(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Migration:
        """See `Store`."""
        migration = self._grant(self._store.create_migration, request, host, nodename, policy)
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
    ) -> ServiceRecord:
        """See `Store`."""
        record = self._store.register_agent(host, binary, topic, version, incarnation, expected)
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
        self._tell_read(
            lambda: (
                build_service_notification(expected, found)
                for found in self._store.list_services(new, binary)
            )
        )
        return moved

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """See `Store`; tells what is over."""
        return self._log_over(self._store.sync_warnings(agent, active))

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """See `Store`."""
        self._store.raise_warning(host, warning)
        self._notifier.notify(build_warning_notification("warning.raise", host, warning))

    def resolve_warnings(self, kind: WarningKind) -> list[WarningRecord]:
        """See `Store`."""
        return self._log_over(self._store.resolve_warnings(kind))

    def _grant(
        self,
        ask: Callable[[ClaimRequest, str, str, AdmissionPolicy], T],
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
    ) -> T:
        try:
            return ask(request, host, nodename, policy)
        except ClaimRefusedError as error:
            self._notifier.notify(
                build_refusal_notification(request, host, nodename, error.reasons)
            )
            raise

    def _log_over(self, over: list[WarningRecord]) -> list[WarningRecord]:
        for record in over:
            self._notifier.notify(
                build_warning_notification("warning.resolve", record.host, record.warning)
            )
        return over

    def _notify_move(self, migration: Migration, *claims: str) -> Migration:
        for uuid in claims:
            self._tell_read(partial(self._read_claim, uuid))
        self._notifier.notify(build_migration_notification(migration))
        return migration

    def _read_claim(self, uuid: str) -> Iterable[Notification]:
        return map(build_claim_notification, self._store.list_claims(uuid=uuid))

    def _tell_read(self, read: Callable[[], Iterable[Notification]]) -> None:
        """Tell what has to be read for it; what was done is done also when that fails."""
        try:
            for notification in read():
                self._notifier.notify(notification)
        except StoreError as error:
            LOG.warning("What was done is not told in full: %s", error)
