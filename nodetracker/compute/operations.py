"""Serve calls of other processes: `nodetracker.ports.HostAgent` for this host."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.manager import ComputeManager
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.audit import AuditOutcome
from nodetracker.model.claim import Claim, ClaimRequest, Migration
from nodetracker.model.errors import DriverFeatureError, RefusedError
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange, ServiceRecord
from nodetracker.ports import Driver, HostAgent, Store
from nodetracker.usecases.reads import find_node, missing_node
from nodetracker.usecases.scheduler import Scheduler


class HostOperations:
    """Serves one host; safe for several threads.

    Args:
        claims: counts the requests for claims and moves.
    """

    def __init__(
        self,
        host: str,
        manager: ComputeManager,
        driver: Driver,
        store: Store,
        claims: ClaimCounter,
    ) -> None:
        self._host = host
        self._manager = manager
        self._driver = driver
        self._store = store
        self._claims = claims

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        self._driver.refresh()
        outcome = AuditOutcome.of(self._manager.update_available_resource())
        if nodename is None:
            return outcome
        if nodename not in outcome.nodes:
            raise missing_node(self._host, nodename)
        return replace(outcome, nodes={nodename: outcome.nodes[nodename]})

    def instance_claim(self, request: Mapping[str, Any]) -> Claim:
        parsed = self._parse(request)
        with self._claims.count():
            return self._noted(self._scheduler.create_claim(parsed))

    def confirm_claim(self, claim_uuid: str) -> Claim:
        return self._noted(self._store.confirm_claim(claim_uuid))

    def abort_claim(self, claim_uuid: str) -> Claim:
        claim = self._noted(self._store.abort_claim(claim_uuid))
        if claim.migration_uuid is not None:  # its other end may be this host's too
            self._manager.ledger_moved()
        return claim

    def renew_claim(self, claim_uuid: str) -> Claim:
        return self._noted(self._store.renew_claim(claim_uuid, self._manager.policy))

    def move_claim(self, request: Mapping[str, Any]) -> Migration:
        parsed = self._parse(request)
        with self._claims.count():
            return self._noted_move(self._scheduler.create_migration(parsed))

    def confirm_migration(self, uuid: str) -> Migration:
        return self._noted_move(self._store.confirm_migration(uuid))

    def revert_migration(self, uuid: str) -> Migration:
        return self._noted_move(self._store.revert_migration(uuid))

    def set_host_enabled(self, enabled: bool, reason: str | None = None) -> ServiceRecord:
        change = ServiceChange(disabled=not enabled, disabled_reason=reason)
        return self._change_service(change)

    def host_maintenance_mode(self, mode: bool) -> ServiceRecord:
        return self._change_service(ServiceChange(maintenance=mode))

    def host_power_action(self, action: str) -> None:
        self._driver.host_power_action(action)

    def get_host_uptime(self, nodename: str) -> timedelta:
        return self._driver.get_host_uptime(nodename)

    def get_node_view(self, nodename: str) -> NodeRecord:
        record = find_node(self._store, self._host, nodename)
        for found in self._store.load_nodes(self._host, [record.id]):
            return found
        raise missing_node(self._host, nodename)

    def ledger_moved(self, nodename: str | None = None) -> None:
        self._manager.ledger_moved(nodename)

    def _noted(self, claim: Claim) -> Claim:
        """Return a claim of this host that changed; its node is audited soon."""
        self._manager.ledger_moved(claim.nodename)
        return claim

    def _noted_move(self, migration: Migration) -> Migration:
        """Return a migration that changed; those of its nodes that are this host's are audited."""
        for host, nodename in migration.places:
            if host == self._host:
                self._manager.ledger_moved(nodename)
        return migration

    def _change_service(self, change: ServiceChange) -> ServiceRecord:
        record = self._store.set_service(self._host, COMPUTE_BINARY, change)
        self._manager.ledger_moved()
        return record

    @property
    def _scheduler(self) -> Scheduler:
        return Scheduler(self._store, self._manager.policy)

    def _parse(self, request: Mapping[str, Any]) -> ClaimRequest:
        parsed = parse_claim_request(request)
        if parsed.host not in (None, self._host):
            raise RefusedError(f"the request is for host {parsed.host}, this is {self._host}")
        return replace(parsed, host=self._host)


class OwnAgentDirectory:
    """`nodetracker.ports.AgentDirectory` of the one agent in this process, without a broker."""

    def __init__(self, host: str, operations: HostOperations) -> None:
        self._host = host
        self._operations = operations

    def agent_of(self, host: str) -> HostAgent:
        """Return this process's agent.

        Raises:
            DriverFeatureError: the host is another one.
        """
        if host != self._host:
            raise DriverFeatureError(f"this process manages {self._host} and cannot call {host}")
        return self._operations
