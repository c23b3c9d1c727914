"""Implement the store port over SQL.

Each method is one transaction, a function of the module of its noun, unless it is
written out here. Observers learn what it changed after its commit.
"""

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from nodetracker.db import (
    candidates,
    capacities,
    claim_lists,
    credentials,
    exclusions,
    fleet,
    heartbeats,
    history,
    host_calls,
    host_warnings,
    hosts,
    node_changes,
    nodes,
    provider_removals,
    samples,
    services,
    tolerances,
    trends,
)
from nodetracker.db.connection.engine import (
    Database,
    DatabaseSettings,
    reading,
    writing,
)
from nodetracker.db.ledger import claims, migrations, starts
from nodetracker.db.quotas import QUOTAS
from nodetracker.db.reader import SqlReader
from nodetracker.model.change import ClaimRefusal, StoreEvent
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.credential import Credential
from nodetracker.model.errors import (
    AuthenticationError,
    ClaimRefusedError,
    ConflictError,
    NotFoundError,
)
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import UNREAD_NEWS, AuditState, HostNews
from nodetracker.model.settings import Quotas
from nodetracker.ports import AdmissionPolicy, AgentKey, SchedulerStore, StoreObserver
from nodetracker.process.clock import utc_clock
from nodetracker.process.outage import Watch, watch_nothing

Clock = Callable[[], datetime]

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PURGED_AT_ONCE = 1000
PURGED_NODES_AT_ONCE = 10
"""Nodes deleted in one transaction; each may have any number of guests and claims."""

_Purge = Callable[[sa.Connection, datetime, int], int]
_PURGES: dict[str, tuple[_Purge, Callable[[sa.Connection, datetime], int]]] = {
    "history": (history.purge, history.count_old),
    "claim_history": (history.purge_claims, history.count_old_claims),
    "warnings": (host_warnings.purge, host_warnings.count_old),
    "migrations": (migrations.purge, migrations.count_old),
    "claims": (claims.purge, claims.count_old),  # after migrations, which refer to them
    "provider_removals": (provider_removals.purge, provider_removals.count_old),
    "trends": (trends.purge, trends.count_old),
}
"""Table -> what deletes at most as many rows as its last argument says, and what counts them."""


def open_store(
    settings: DatabaseSettings,
    clock: Clock = utc_clock,
    observers: Sequence[StoreObserver] = (),
    watch: Watch = watch_nothing,
) -> "SqlStore":
    """Build the store; the first call opens the first connection.

    Args:
        clock, observers: see `SqlStore`.
        watch: see `Database`.

    Raises:
        ConfigError: the URL cannot be used.
    """
    return SqlStore(Database(settings, watch), clock, observers)


def observed(
    work: "Callable[Concatenate[sa.Connection, P], tuple[T, StoreEvent]]",
    retry_on_duplicate: bool = False,
    is_divisible: bool = False,
) -> "Callable[Concatenate[SqlStore, P], T]":
    """Return a method that runs a function by `Database.write`, and notifies of its event."""

    @functools.wraps(work)
    def method(self: "SqlStore", /, *positional: P.args, **named: P.kwargs) -> T:
        answer, event = self._database.write(
            lambda connection: work(connection, *positional, **named),
            retry_on_duplicate,
            is_divisible=is_divisible,
        )
        self._notify(event)
        return answer

    return method


def granted(
    create: Callable[
        [sa.Connection, ClaimRequest, str, str, AdmissionPolicy, bool], tuple[T, StoreEvent]
    ],
    find: Callable[[sa.Connection, ClaimRequest], tuple[T, StoreEvent] | None],
) -> "Callable[..., T]":
    """Return a method that grants a request, or returns what the same one was granted before.

    A duplicate key means that it was granted at the same time. A refusal may be caused by
    that earlier grant.
    """

    @functools.wraps(create)
    def method(
        self: "SqlStore",
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> T:
        try:
            answer, event = self._database.write(
                lambda c: create(c, request, host, nodename, policy, skip_locked)
            )
        except (ClaimRefusedError, ConflictError) as error:
            existing = self._database.read(lambda c: find(c, request))
            if existing is None:
                if isinstance(error, ClaimRefusedError):
                    refusal = ClaimRefusal(request, host, nodename, tuple(error.reasons))
                    self._notify(StoreEvent(refused=(refusal,)))
                raise
            answer, event = existing
        self._notify(event)
        return answer

    return method


class SqlStore(SqlReader):
    """`nodetracker.ports.Store` over SQLite, MariaDB, MySQL and PostgreSQL.

    It is a `ToleranceStore` and a `CredentialStore`, too.

    Args:
        clock: this host's own time, whose skew each heartbeat stores.
        observers: learn what this process's calls have changed.
    """

    def __init__(
        self, database: Database, clock: Clock, observers: Sequence[StoreObserver] = ()
    ) -> None:
        super().__init__(database)
        self._clock = clock
        self._observers = observers

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine, for schema revisions and tests."""
        return self._database.engine

    def limited(self, quotas: Quotas) -> "SqlStore":
        """Return this store for the calls of agents, of which it stores no more than quotas."""
        database = self._database.with_options(**{QUOTAS: quotas})
        return SqlStore(database, self._clock, self._observers)

    load_versions = reading(nodes.load_versions)
    sum_versions = reading(nodes.sum_versions)
    sync_warnings = observed(host_warnings.sync_warnings, retry_on_duplicate=True)
    raise_warning = observed(host_warnings.raise_warning, retry_on_duplicate=True)
    resolve_warnings = observed(host_warnings.resolve_warnings)
    silence_warning = writing(host_warnings.silence_warning)
    register_agent = observed(services.register_agent)
    mark_service = writing(services.mark_service)
    set_service = observed(services.set_service)
    delete_service = observed(hosts.delete_service)
    rename_host = observed(hosts.rename_host)
    take_over_node = observed(hosts.take_over_node)
    _purge_nodes = observed(hosts.purge_nodes)
    delete_node = observed(hosts.delete_node)
    adopt_uuid = writing(nodes.adopt_uuid)
    accept_node = observed(capacities.accept_node)

    apply_changes = observed(node_changes.apply_changes, retry_on_duplicate=True)

    create_claim = granted(claims.create_claim, claims.find_existing_grant)
    create_claims = observed(claims.create_claims, retry_on_duplicate=True, is_divisible=True)
    try_claim = writing(claims.try_claim)
    admit_start = observed(starts.admit_start)
    end_start = observed(starts.end_start)
    confirm_claim = observed(claims.confirm_claim)
    renew_claim = observed(claims.renew_claim)
    abort_claim = observed(claims.abort_claim)
    list_expired_claims = reading(nodes.list_expired_claims)
    list_split_brains = reading(claim_lists.list_split_brains)
    create_migration = granted(migrations.create_migration, migrations.find_existing_grant)
    confirm_migration = observed(migrations.confirm_migration)
    revert_migration = observed(migrations.revert_migration)
    set_migration_status = observed(migrations.set_migration_status)

    find_candidates = reading(candidates.find_candidates)
    count_exclusions = reading(exclusions.count_exclusions)
    find_nearest = reading(exclusions.find_nearest)
    load_ledger_nodes = reading(fleet.load_ledger_nodes)
    find_claims = reading(claim_lists.find_claims)
    find_guests = reading(claim_lists.find_guests)
    find_requirements = reading(claim_lists.find_requirements)

    list_rooms = reading(candidates.list_rooms)
    load_hosts = reading(nodes.load_hosts)
    save_tolerances = writing(tolerances.save_tolerances, retry_on_duplicate=True)

    create_call = writing(host_calls.create_call)
    find_answer = reading(host_calls.find_answer)
    answer_call = writing(host_calls.answer_call)
    check_calls = writing(host_calls.check_privileges)

    list_provider_removals = reading(provider_removals.list_removals)
    fail_provider_removal = writing(provider_removals.fail_removal)
    finish_provider_removal = writing(provider_removals.finish_removal)

    create_join_token = writing(credentials.create_join_token)
    join_agent = writing(credentials.join_agent, retry_on_duplicate=True)
    renew_credential = writing(credentials.renew_credential)
    revoke_credential = writing(credentials.revoke_credential)
    list_credentials = reading(credentials.list_credentials)
    find_hosts = reading(credentials.find_hosts)

    def rehearse(self, work: Callable[[SchedulerStore], T]) -> T:
        return self._database.rehearse(lambda database: work(SqlStore(database, self._clock)))

    def _notify(self, event: StoreEvent) -> None:
        for observer in self._observers:
            try:
                observer.committed(event)
            except Exception:  # the change is stored, whatever an observer does
                LOG.exception("Store observer %s failed", type(observer).__name__)

    def report_for_news(
        self,
        secret_hash: str,
        authorize: Callable[[Credential], Mapping[str, Any]],
        expires_at: datetime | None = None,
    ) -> HostNews | None:

        def report(connection: sa.Connection) -> HostNews | None:
            owner, news = host_calls.read_joined_news(connection, secret_hash)
            if owner is None:
                return None
            given = authorize(owner)
            asked_at = given.get("host_time") or self._clock()
            heartbeat = given["agent"], given["report_count"], given["state"]
            heartbeats.report_state(
                connection, *heartbeat, asked_at, is_last=False, expires_at=expires_at
            )
            return replace(news, calls=host_calls.take_calls(connection, news.calls))

        return self._database.write(report, retry_on_lock_wait=False)

    def find_credential(self, secret_hash: str, address: str) -> Credential:
        """Store a warning although the call fails."""
        found: Credential | str | None = self._database.read(
            lambda c: credentials.find_credential(c, secret_hash, address)
        )
        if found is None:
            found, event = self._database.write(
                lambda c: credentials.use_credential(c, secret_hash, address)
            )
            self._notify(event)
        if isinstance(found, str):
            raise AuthenticationError(found)
        return found

    def take_provider_removals(self, query: RemovalQuery) -> list[ProviderRemoval]:
        if not self._database.read(lambda c: provider_removals.has_due(c, query)):
            return []
        return self._database.write(lambda c: provider_removals.take_removals(c, query))

    def sample_trends(self) -> None:
        rows = self._database.read(samples.list_missing_rows)
        if rows:
            self._database.write(lambda c: samples.insert_rows(c, rows), retry_on_duplicate=True)
        while self._database.write(lambda c: samples.purge_aged(c, PURGED_AT_ONCE)):
            pass

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
        known_calls: int | None = None,
    ) -> HostNews | None:
        heartbeat = agent, report_count, state, host_time or self._clock(), is_last, known_calls
        is_called = self._database.write(
            lambda c: heartbeats.report_state(c, *heartbeat),
            retry_on_lock_wait=False,  # later, it no longer proves that the agent is alive
        )
        return UNREAD_NEWS if is_called else None

    def take_news(self, agent: AgentKey) -> HostNews:
        """Write only where a call waits."""
        news = self._database.read(lambda c: host_calls.read_news(c, agent))
        if not news.calls:
            return news
        taken = self._database.write(lambda c: host_calls.take_calls(c, news.calls))
        return replace(news, calls=taken)

    def purge_host(self, host: str, service_down_time: int) -> int:
        deleted = 0
        while part := self._purge_nodes(host, service_down_time, PURGED_NODES_AT_ONCE):
            deleted += part
        if not deleted:
            raise NotFoundError(f"host {host} has no nodes")
        return deleted

    def purge(
        self, before: datetime, tables: Collection[str] = (), is_part: bool = False
    ) -> Mapping[str, int]:
        # In one transaction it would hold the locks of their nodes for minutes, and Galera
        # rejects one that is too large.
        return {
            name: self._purge_table(delete, before, is_part)
            for name, (delete, _) in _PURGES.items()
            if name in (tables or _PURGES)
        }

    def count_old(self, before: datetime) -> Mapping[str, int]:
        """Return table -> rows that `purge` would delete."""
        return {
            name: self._database.read(lambda c, count=count: count(c, before))  # type: ignore[misc]
            for name, (_, count) in _PURGES.items()
        }

    def _purge_table(
        self,
        delete: Callable[[sa.Connection, datetime, int], int],
        before: datetime,
        is_part: bool,
    ) -> int:
        deleted = 0
        while part := self._database.write(lambda c: delete(c, before, PURGED_AT_ONCE)):
            deleted += part
            if is_part:
                break
        return deleted
