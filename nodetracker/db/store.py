"""Implement the store port over SQL.

Each method is one transaction; its statements are in the module of its noun.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.db import claims as split_brains
from nodetracker.db import host_warnings, hosts, node_changes, nodes, purging, services
from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.ledger import claims, migrations
from nodetracker.db.placing import SqlPlacing
from nodetracker.db.provider_removals import SqlRemovals
from nodetracker.db.reader import SqlReader
from nodetracker.model.change import NodeChange
from nodetracker.model.claim import Claim, ClaimRequest, Migration, MigrationStatus, SplitBrain
from nodetracker.model.errors import ClaimRefusedError, ConflictError
from nodetracker.model.node import HostVersions
from nodetracker.model.service import AuditState, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports import AdmissionPolicy, AgentKey, ApplyResult
from nodetracker.process.clock import utc_clock

Clock = Callable[[], datetime]

T = TypeVar("T")


def open_store(settings: DatabaseSettings, clock: Clock = utc_clock) -> "SqlStore":
    """Build the store; the first call opens the first connection.

    Args:
        clock: this host's own time, whose skew each heartbeat stores.

    Raises:
        ConfigError: the URL cannot be used.
    """
    return SqlStore(Database(settings), clock)


class SqlStore(SqlReader, SqlPlacing, SqlRemovals):
    """`nodetracker.ports.Store` over SQLite, MariaDB, MySQL and PostgreSQL."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine, for migrations and tests."""
        return self._database.engine

    def load_versions(self, host: str, binary: str) -> HostVersions:
        """See `Store`."""
        return self._database.read(lambda c: nodes.load_versions(c, host, binary))

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """See `Store`."""
        if not changes:
            return ApplyResult()
        return self._database.write(
            lambda c: node_changes.apply_changes(c, agent, changes, service_down_time),
            retry_on_duplicate=True,
        )

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """See `Store`."""
        return self._database.write(
            lambda c: host_warnings.sync_warnings(c, agent, active), retry_on_duplicate=True
        )

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """See `Store`."""
        self._database.write(
            lambda c: host_warnings.raise_warning(c, host, warning), retry_on_duplicate=True
        )

    def resolve_warnings(
        self, kind: WarningKind, hosts: Collection[str] | None = None
    ) -> list[WarningRecord]:
        """See `Store`."""
        return self._database.write(lambda c: host_warnings.resolve_warnings(c, kind, hosts))

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
        return self._database.write(
            lambda c: services.register_agent(
                c, host, binary, topic, version, incarnation, expected, held_epoch
            )
        )

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
    ) -> None:
        """See `Store`."""
        asked_at = host_time or self._clock()
        self._database.write(
            lambda c: services.report_state(c, agent, report_count, state, asked_at, is_last),
            retry_on_lock_wait=False,  # later, it no longer proves that the agent is alive
        )

    def mark_service(self, agent: AgentKey, reason: str | None) -> None:
        """See `Store`."""
        self._database.write(lambda c: services.mark_service(c, agent, reason))

    def create_claim(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Claim:
        """See `Store`."""
        return self._grant(
            lambda c: claims.create_claim(c, request, host, nodename, policy, skip_locked),
            lambda c: claims.find_existing_grant(c, request),
        )

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Admission:
        """See `Store`."""
        return self._database.write(lambda c: claims.try_claim(c, request, host, nodename, policy))

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        return self._database.write(lambda c: claims.confirm_claim(c, uuid))

    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """See `Store`."""
        return self._database.write(lambda c: claims.renew_claim(c, uuid, policy))

    def abort_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        return self._database.write(lambda c: claims.abort_claim(c, uuid))

    def list_expired_claims(self, host: str, workload_uuids: Collection[str]) -> list[Claim]:
        """See `Store`."""
        return self._database.read(lambda c: nodes.list_expired_claims(c, host, workload_uuids))

    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """See `Store`."""
        return self._database.read(lambda c: split_brains.list_split_brains(c, host))

    def create_migration(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Migration:
        """See `Store`."""
        return self._grant(
            lambda c: migrations.create_migration(c, request, host, nodename, policy, skip_locked),
            lambda c: migrations.find_existing_grant(c, request),
        )

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        return self._database.write(lambda c: migrations.confirm_migration(c, uuid))

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        return self._database.write(lambda c: migrations.revert_migration(c, uuid))

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        return self._database.write(lambda c: migrations.set_migration_status(c, uuid, status))

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """See `Store`."""
        return self._database.write(lambda c: services.set_service(c, host, binary, change))

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """See `Store`."""
        self._database.write(lambda c: hosts.delete_service(c, host, binary, service_down_time))

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """See `Store`."""
        return self._database.write(lambda c: hosts.rename_host(c, old, new, binary, expected))

    def delete_node(self, host: str, nodename: str) -> None:
        """See `Store`."""
        self._database.write(lambda c: nodes.delete_node(c, host, nodename))

    def adopt_uuid(self, host: str, nodename: str, before: str, uuid: str) -> None:
        """See `Store`."""
        self._database.write(lambda c: nodes.adopt_uuid(c, host, nodename, before, uuid))

    def purge(
        self, before: datetime, tables: Collection[str] = (), is_part: bool = False
    ) -> Mapping[str, int]:
        """See `Store`."""
        return purging.purge(self._database, before, tables, is_part)

    def _grant(
        self, grant: Callable[[sa.Connection], T], find: Callable[[sa.Connection], T | None]
    ) -> T:
        """Grant a request, or return what the same one was granted before.

        A duplicate key means that it was granted at the same time. A refusal
        may be caused by that earlier grant.
        """
        try:
            return self._database.write(grant)
        except (ClaimRefusedError, ConflictError):
            existing = self._database.read(find)
            if existing is None:
                raise
            return existing
