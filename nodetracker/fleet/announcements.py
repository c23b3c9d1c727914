"""Announce changes of the ledger to the agents of the nodes concerned.

An agent that learns of a claim audits its node within a second instead of at
the end of its interval. Nothing depends on it: the next audit finds whatever
was not announced.
"""

import logging
import threading
from typing import Any

from nodetracker.model.claim import Claim, ClaimRequest, Migration, MigrationStatus
from nodetracker.model.errors import NodetrackerError, StoreError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange, ServiceRecord
from nodetracker.ports import AdmissionPolicy, AgentDirectory, LedgerListener, Store
from nodetracker.ports.delegated_store import DelegatedStore
from nodetracker.process.workers import start_thread

LOG = logging.getLogger(__name__)

MAX_WAITING = 1000
"""Announcements that wait for the broker; further ones are discarded."""


class LedgerAnnouncer:
    """`nodetracker.ports.LedgerListener` that calls agents, in a thread of its own.

    Announcements of one node that wait are sent as one. Those that the broker
    does not accept are lost.

    Args:
        agents: finds them; their `ledger_moved` does not wait for an answer.
    """

    def __init__(self, agents: AgentDirectory) -> None:
        self._agents = agents
        self._waiting: dict[tuple[str, str | None], None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ledger_moved(self, host: str, nodename: str | None) -> None:
        """Queue an announcement; the first one starts the thread."""
        with self._changed:
            if len(self._waiting) < MAX_WAITING:
                self._waiting[host, nodename] = None
            if self._thread is None:  # started late, as a WSGI server may fork before it serves
                self._thread = start_thread("ledger-announcements", self._run)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                host, nodename = next(iter(self._waiting))
                del self._waiting[host, nodename]
            try:
                self._agents.agent_of(host).ledger_moved(nodename)
            except NodetrackerError as error:
                LOG.debug("A change on host %s was not announced: %s", host, error)
            except Exception:  # the thread must survive any error of the library
                LOG.exception("A change on host %s was not announced", host)


def announcing_store(store: Store, listener: LedgerListener) -> Store:
    """Return a store that announces the changes of nodes' usage that are made through it."""
    return AnnouncingStore(store, listener)


class AnnouncingStore(DelegatedStore):
    """`nodetracker.ports.Store` on top of another one, with announcements after each commit."""

    def __init__(self, store: Store, listener: LedgerListener) -> None:
        self._store = store
        self._listener = listener

    def create_claim(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Claim:
        """See `Store`."""
        return self._announced(
            self._store.create_claim(request, host, nodename, policy, skip_locked)
        )

    def confirm_claim(self, uuid: str) -> Claim:
        """See `Store`."""
        return self._announced(self._store.confirm_claim(uuid))

    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """See `Store`."""
        return self._announced(self._store.renew_claim(uuid, policy))

    def abort_claim(self, uuid: str) -> Claim:
        """See `Store`; of a move, both ends are announced."""
        claim = self._announced(self._store.abort_claim(uuid))
        if claim.migration_uuid is not None:
            try:
                found = self._store.list_migrations(uuid=claim.migration_uuid)
            except StoreError as error:
                LOG.debug("The end of a move was not announced: %s", error)
            else:
                for migration in found:
                    self._announced_move(migration)
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
        return self._announced_move(
            self._store.create_migration(request, host, nodename, policy, skip_locked)
        )

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        return self._announced_move(self._store.confirm_migration(uuid))

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store`."""
        return self._announced_move(self._store.revert_migration(uuid))

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """See `Store`."""
        return self._announced_move(self._store.set_migration_status(uuid, status))

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """See `Store`."""
        record = self._store.set_service(host, binary, change)
        if binary == COMPUTE_BINARY:
            self._listener.ledger_moved(host, None)
        return record

    def _announced(self, claim: Claim) -> Claim:
        self._listener.ledger_moved(claim.host, claim.nodename)
        return claim

    def _announced_move(self, migration: Migration) -> Migration:
        for host, nodename in migration.places:
            self._listener.ledger_moved(host, nodename)
        return migration

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return getattr(self._store, name)(*positional, **named)
