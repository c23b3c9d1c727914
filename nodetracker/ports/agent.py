"""What an agent is asked by others, and whom it tells."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from nodetracker.model.audit import AuditOutcome, AuditReport
from nodetracker.model.claim import Claim
from nodetracker.model.migration import Migration
from nodetracker.model.node import NodeRecord
from nodetracker.model.notification import Notification
from nodetracker.model.service import ServiceRecord


class AuditObserver(Protocol):
    """Is told of every audit, stored or not; must not block and must not raise."""

    def audited(self, report: AuditReport) -> None:
        """Take note of one audit."""


class Notifier(Protocol):
    """Tells listeners what happened; must not block and must not raise."""

    def notify(self, notification: Notification) -> None:
        """Take one notification, to be sent as soon as it can be."""


class HostAgent(Protocol):
    """What the agent of one host does for others; served over RPC, called by `AgentDirectory`.

    Every method may raise StoreError: the agent's database did not take it.
    """

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        """Audit the host now and say how it went.

        Args:
            nodename: say it of this node alone.

        Raises:
            NotFoundError: the driver lists no such node and there is no row of it.
        """

    def instance_claim(self, request: Mapping[str, Any]) -> Claim:
        """Hold what a workload asks for on a node of this host; see `Store.create_claim`.

        Args:
            request: as JSON; without a nodename it is the host's only node.

        Raises:
            RequestError: the request is invalid.
            NotFoundError: the request names no node and the host has none.
            RefusedError: the request is for another host, does not name one of
                several nodes, or its claim was granted before and is released by now.
        """

    def confirm_claim(self, claim_uuid: str) -> Claim:
        """See `Store.confirm_claim`."""

    def abort_claim(self, claim_uuid: str) -> Claim:
        """See `Store.abort_claim`."""

    def renew_claim(self, claim_uuid: str) -> Claim:
        """See `Store.renew_claim`."""

    def move_claim(self, request: Mapping[str, Any]) -> Migration:
        """Hold a move's destination on a node of this host; see `Store.create_migration`."""

    def confirm_migration(self, uuid: str) -> Migration:
        """See `Store.confirm_migration`."""

    def revert_migration(self, uuid: str) -> Migration:
        """See `Store.revert_migration`."""

    def set_host_enabled(self, enabled: bool, reason: str | None = None) -> ServiceRecord:
        """Take the host out of, or back into, what is scheduled to."""

    def host_maintenance_mode(self, mode: bool) -> ServiceRecord:
        """Take no new claims, or again; what runs stays, and moves nowhere by itself."""

    def host_power_action(self, action: str) -> None:
        """See `Driver.host_power_action`."""

    def get_host_uptime(self, nodename: str) -> timedelta:
        """See `Driver.get_host_uptime`."""

    def get_node_view(self, nodename: str) -> NodeRecord:
        """Return a node as it is stored, with guests, devices and claims.

        Raises:
            NotFoundError: this host has none.
        """


class CallServer(Protocol):
    """Answers calls of others in threads of its own."""

    def start(self) -> None:
        """Begin in the background; returns at once."""

    def stop(self, timeout_seconds: float) -> bool:
        """Take no more calls and let those that run end; False when some still run then."""


class AgentDirectory(Protocol):
    """Finds the agents of other hosts."""

    def agent_of(self, host: str) -> HostAgent:
        """Return the agent of a host; it is not asked before a method is called.

        Its methods raise RpcUnavailableError when no answer comes in time.
        """
