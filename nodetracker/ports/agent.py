"""Ports between an agent and other processes: calls to it, and observers of its work."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from nodetracker.model.audit import AuditOutcome, AuditReport
from nodetracker.model.change import Notification, StoreEvent
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import ServiceRecord


class AuditObserver(Protocol):
    """Observes every audit, stored or not; must not block and must not raise."""

    def audited(self, report: AuditReport) -> None:
        """Process the report of one audit."""


class StoreObserver(Protocol):
    """Learns what a process's store has committed; must not block.

    An error that it raises is logged, and affects neither the caller nor other observers.
    """

    def committed(self, event: StoreEvent) -> None:
        """Process what one call changed, in the thread that called."""


class Notifier(Protocol):
    """Sends notifications; must not block and must not raise."""

    def notify(self, notification: Notification) -> None:
        """Queue one notification, to be sent as soon as possible."""


class AuditAgent(Protocol):
    """Audits of one host on request.

    Raises StoreError: the agent's database operation failed.
    """

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        """Audit the host now and return the outcome.

        Args:
            nodename: return the outcome of this node only.

        Raises:
            NotFoundError: the driver lists no such node, and no row of it exists.
        """


class HostAgent(AuditAgent, Protocol):
    """Operations of one host's agent for other processes, served over RPC; see `AgentDirectory`.

    Every method may raise StoreError: the agent's database operation failed.
    """

    def instance_claim(self, request: Mapping[str, Any]) -> Claim:
        """Claim what a workload requests on a node of this host; see `LedgerStore.create_claim`.

        Args:
            request: as JSON; without a nodename the host's only node is used.

        Raises:
            RequestError: the request is invalid.
            NotFoundError: the request names no node and the host has none.
            RefusedError: the request is for another host, does not name one of
                several nodes, or its claim was granted before and is released since.
        """

    def confirm_claim(self, claim_uuid: str) -> Claim:
        """See `LedgerStore.confirm_claim`."""

    def abort_claim(self, claim_uuid: str) -> Claim:
        """See `LedgerStore.abort_claim`."""

    def renew_claim(self, claim_uuid: str) -> Claim:
        """See `LedgerStore.renew_claim`."""

    def move_claim(self, request: Mapping[str, Any]) -> Migration:
        """Claim a move's destination on a node of this host; see `LedgerStore.create_migration`."""

    def confirm_migration(self, uuid: str) -> Migration:
        """See `LedgerStore.confirm_migration`."""

    def revert_migration(self, uuid: str) -> Migration:
        """See `LedgerStore.revert_migration`."""

    def set_host_enabled(self, enabled: bool, reason: str | None = None) -> ServiceRecord:
        """Let schedulers use the host, or exclude it."""

    def host_maintenance_mode(self, mode: bool) -> ServiceRecord:
        """Refuse new claims, or accept them again; workloads are neither stopped nor moved."""

    def host_power_action(self, action: str) -> None:
        """See `Driver.host_power_action`."""

    def get_host_uptime(self, nodename: str) -> timedelta:
        """See `Driver.get_host_uptime`."""

    def get_node_view(self, nodename: str) -> NodeRecord:
        """Return a node as it is stored, with guests, devices and claims.

        Raises:
            NotFoundError: this host has no such node.
        """

    def ledger_moved(self, nodename: str | None = None) -> None:
        """Audit a node soon, because its claims changed; None = all, because the service did.

        Nobody waits for the audit. Over the broker the call has no answer.
        """


class CallServer(Protocol):
    """Answers calls of other processes in its own threads."""

    def start(self) -> None:
        """Start in the background; return immediately."""

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more calls; return whether all running ones ended in time."""


class AgentDirectory(Protocol):
    """Finds the agents of other hosts."""

    def agent_of(self, host: str) -> HostAgent:
        """Return the agent of a host; nothing is sent before one of its methods is called.

        Its methods raise RpcUnavailableError when no answer arrives in time.
        """
