"""The part of the store that agents and other services use for themselves."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from nodetracker.model.change import ApplyResult, NodeChange
from nodetracker.model.claim import Claim, SplitBrain
from nodetracker.model.node import HostVersions
from nodetracker.model.service import AgentKey, AuditState, Incarnation, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports.fleet_store import FleetStore
from nodetracker.ports.methods import repeatable


class AgentStore(FleetStore, Protocol):
    """The services row, nodes and warnings of one host, written by whoever holds the host.

    Writes compare the agent's epoch, a row's generation or the report count, so
    the next audit or heartbeat finds out whether one whose answer was lost was
    carried out; few of them are repeatable.
    """

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
        """Create or take over the services row; raise its epoch and that of the host's nodes.

        Args:
            expected: the row on which the decision to take over rests, None
                when it did not exist.
            held_epoch: epoch of this run so far; the new one is above it, too, where a
                backup was restored.

        Raises:
            ConflictError: the row has changed since; decide again.
        """

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
    ) -> None:
        """Write the heartbeat's columns by one UPDATE, with the database's time.

        Args:
            host_time: the agent's own clock, whose skew is stored; None = this process's.
            is_last: the process ends, so that the service is down until it is taken over.

        Raises:
            FencedError: no row has this agent_id and epoch, a lower report_count, and
                at least the one of `agent`.
        """

    @repeatable
    def mark_service(self, agent: AgentKey, reason: str | None) -> None:
        """Disable the agent's own service for an automatic reason, or enable it again.

        A service that an administrator disabled is left alone, and so is the
        row of an agent that is fenced.

        Args:
            reason: begins with `AUTO_PREFIX`; None = it no longer applies.
        """

    @repeatable
    def load_versions(self, host: str, binary: str) -> HostVersions:
        """Return id, generation and epoch of the host's rows and the time, by one statement.

        Raises:
            NotFoundError: the host has no services row.
        """

    @repeatable
    def list_expired_claims(self, host: str, workload_uuids: Collection[str]) -> list[Claim]:
        """Return the expired claims of workloads on a host's nodes, by one statement."""

    @repeatable
    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """Return a host's workloads that hold claims on another node, by one statement.

        They hold a claim on the host's node as well, or run there without one.
        Workloads of an open migration are left out.
        """

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """Write at most 100 changes in one ledger transaction.

        Rows are locked in id order; a change whose row has another generation
        than its record is a conflict, the others are written. A creation whose
        uuid exists under another host takes that row over when that host is
        down, and is refused while it is up.

        Raises:
            FencedError: a row or the service has a newer epoch.
        """

    @repeatable
    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """Make these the host's unresolved warnings: raise, count again, resolve.

        One that was counted within `COUNT_INTERVAL` only gets its new message.
        Warnings reported by others (`REPORTED_BY_OTHERS`) are kept for an hour.

        Returns:
            The warnings that this call resolved.

        Raises:
            FencedError: the services row belongs to another agent.
        """

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """Raise, or count again, one warning about a host that another process holds."""

    def resolve_warnings(
        self, kind: WarningKind, hosts: Collection[str] | None = None
    ) -> list[WarningRecord]:
        """Resolve the warnings of a kind; return those that this call resolved.

        Args:
            hosts: only of these hosts; None = of all.
        """
