"""What a store is asked, and what it answers with."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.model.change import HistoryEntry, NodeChange
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, SplitBrain
from nodetracker.model.fleet import LedgerNode, LedgerVersions
from nodetracker.model.migration import Migration, MigrationStatus
from nodetracker.model.node import HostVersions, NodeRecord
from nodetracker.model.service import AuditState, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.settings import AdmissionPolicy


@dataclass(frozen=True, slots=True)
class AgentKey:
    """Who writes: every write of an agent is compared with its epoch.

    Attributes:
        service_uuid: of the services row that it took; a row that was deleted
            and made again counts epochs anew.
    """

    host: str
    binary: str
    agent_id: str
    epoch: int
    service_uuid: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What one transaction of changes did.

    Attributes:
        records: nodename -> the row as it now is, for each change written
            (not for deletions).
        conflicts: nodenames whose row moved meanwhile; nothing of theirs was
            written. Read again and decide again.
        refused: nodename -> why it may not be written (its uuid stands under
            another host that is alive).
    """

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """The rows. Times are UTC and the database's; every method is one transaction.

    Every method may raise StoreUnavailableError (try again later; nothing was
    written, unless the answer to a commit was lost) or SchemaError (run
    ``nodetracker-manage db sync``).
    """

    # The agent's own path.

    def load_versions(self, host: str, binary: str) -> HostVersions:
        """Return id, generation and epoch of the host's rows and the time, by one statement.

        Raises:
            NotFoundError: the host has no services row.
        """

    def load_nodes(self, host: str, node_ids: Collection[int] | None = None) -> list[NodeRecord]:
        """Return nodes of a host with guests and devices, by a fixed number of statements.

        Args:
            node_ids: only these rows; None is all of the host's.
        """

    def list_split_brains(self, host: str) -> list[SplitBrain]:
        """Return a host's workloads that hold claims on another node, by one statement.

        They hold a claim on the host's node as well, or run there without one.
        What an open migration ties is left out.
        """

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """Write at most 100 changes in one ledger transaction.

        Rows are locked in id order; a change whose row has another generation
        than its record is a conflict, the others are written. A creation whose
        uuid stands under another host takes that row over when that host is
        down, and is refused while it is up.

        Raises:
            FencedError: a row or the service carries a newer epoch.
        """

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """Make these the host's unresolved warnings: raise, count again, resolve.

        What others report (`REPORTED_BY_OTHERS`) stays until it is an hour old.

        Returns:
            Those that stood until now and are over.

        Raises:
            FencedError: the services row is another agent's.
        """

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """Raise or count again one warning of a host that another process answers for."""

    def resolve_warnings(self, kind: WarningKind) -> list[WarningRecord]:
        """Say of every host that warnings of a kind are over; return those that stood."""

    # Services.

    def register_agent(
        self,
        host: str,
        binary: str,
        topic: str,
        version: str,
        incarnation: Incarnation,
        expected: ServiceRecord | None,
    ) -> ServiceRecord:
        """Make or take the services row and raise its epoch and that of the host's nodes.

        Args:
            seen: the row on which the decision to take it rests, None when
                there was none.

        Raises:
            ConflictError: the row is another by now; decide again.
        """

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
    ) -> None:
        """Write the heartbeat's columns by one UPDATE, the time being the database's.

        Args:
            host_time: the agent's own clock, whose skew is stored; None = this process's.

        Raises:
            FencedError: no row has this agent_id and epoch and a lower report_count.
        """

    def mark_service(self, agent: AgentKey, reason: str | None) -> None:
        """Disable the agent's own service for a reason of its own, or enable it again.

        What an administrator disabled stays as it is, and so does the row of
        an agent that is fenced.

        Args:
            reason: begins with `AUTO_PREFIX`; None = there is none any more.
        """

    def list_services(
        self, host: str | None = None, binary: str | None = None, agent_id: str | None = None
    ) -> list[ServiceRecord]:
        """Return services in order of host and binary."""

    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """Change what an administrator says of a service; the heartbeat is not touched.

        Raises:
            NotFoundError: there is none.
        """

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """Delete a service that is no longer heard of, with its nodes and warnings.

        Raises:
            NotFoundError: there is none.
            RefusedError: it was heard of within `service_down_time` seconds.
        """

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """Move a host's rows to another host name and raise their epoch; return its nodes' number.

        The node that is called as the host was is renamed too; every node keeps its uuid.

        Args:
            seen: the services row from which the caller concluded that the
                host's agent does not run, None when there was none.

        Raises:
            NotFoundError: there is nothing under the old name.
            RefusedError: there is something under the new name.
            ConflictError: the services row is another by now; look again.
        """

    # The ledger: any process with the store may call these.

    def create_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Claim:
        """Hold what a workload asks for on one node, in one ledger transaction.

        The same request again answers the same claim.

        Raises:
            ClaimRefusedError: it does not fit, or the node takes none now;
                every reason is named.
            ClaimConflictError: its uuid stands for another request.
        """

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Admission:
        """Judge a claim as `create_claim` does, and write nothing.

        Raises:
            NotFoundError: there is no such node.
        """

    def confirm_claim(self, uuid: str) -> Claim:
        """Say that a claim's guest is there; it does not expire any more.

        Raises:
            NotFoundError: there is no such claim.
            RefusedError: it is released.
        """

    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """Let a held claim expire later, counted from now.

        Raises: as `confirm_claim`.
        """

    def abort_claim(self, uuid: str) -> Claim:
        """Release a claim; one that is released already stays as it is.

        A guest of it that is listed counts as unclaimed from the same commit on.
        A migration whose destination it is becomes cancelled.

        Raises:
            NotFoundError: there is no such claim.
            RefusedError: it is the source of a running migration.
        """

    def list_claims(
        self,
        host: str | None = None,
        state: ClaimState | None = None,
        uuid: str | None = None,
    ) -> list[Claim]:
        """Return claims, oldest first."""

    def create_migration(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Migration:
        """Hold a move's destination beside its source, in one ledger transaction on both nodes.

        The destination is admitted as any claim, on the source's own node on
        top of the source. The source's host may be down. The same request
        again answers the same migration.

        Raises:
            ClaimRefusedError: the source cannot be moved from, or the
                destination does not fit; every reason is named.
            ClaimConflictError: the claim's uuid stands for another request.
            RequestError: the request asks for no move.
        """

    def confirm_migration(self, uuid: str) -> Migration:
        """Release the source and confirm the destination, in one transaction on both nodes.

        A guest of the source that is still listed counts as unclaimed from
        the same commit on. What is confirmed already stays as it is.

        Raises:
            NotFoundError: there is no such migration.
            RefusedError: it was reverted or cancelled, or its destination was released.
        """

    def revert_migration(self, uuid: str) -> Migration:
        """Release the destination, in one transaction on both nodes.

        What is reverted already stays as it is.

        Raises:
            NotFoundError: there is no such migration.
            RefusedError: it was confirmed or cancelled, or its source was released
                while its destination counts.
        """

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """Say how far a migration is, or that it is in error; its claims stay as they are.

        Raises:
            NotFoundError: there is no such migration.
            RefusedError: it is further already, has ended, or that would end it.
        """

    def list_migrations(
        self,
        host: str | None = None,
        uuid: str | None = None,
        status: MigrationStatus | None = None,
    ) -> list[Migration]:
        """Return migrations, oldest first; `host` is either side's."""

    # Schedulers.

    def load_ledger_versions(self) -> LedgerVersions:
        """Return the stamps of all hosts' nodes, their services' gates and the time.

        One statement, however many nodes there are.
        """

    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """Return what admission needs of these nodes, by a fixed number of statements.

        One that is gone is left out. Stamps are read before what hangs below
        them, so what is newer than its stamp is read again.
        """

    # Operators' questions.

    def now(self) -> datetime:
        """Return the database's time."""

    def list_nodes(self, host: str | None = None, nodename: str | None = None) -> list[NodeRecord]:
        """Return rows without guests and devices, in order of host and nodename."""

    def list_history(
        self,
        host: str,
        nodename: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """Return what agents changed, oldest first; `limit` keeps the newest."""

    def list_warnings(self, host: str | None = None) -> list[WarningRecord]:
        """Return unresolved and resolved warnings, oldest first seen first."""

    def delete_node(self, host: str, nodename: str) -> None:
        """Delete one row with its guests and devices, and say so in the history.

        Raises:
            NotFoundError: there is none.
        """

    def purge(self, before: datetime) -> Mapping[str, int]:
        """Delete what ended before `before`; table -> rows deleted.

        History, resolved warnings, migrations, and released claims of which
        no migration tells any more; a request whose claim was purged is a new one.
        """

    def close(self) -> None:
        """Let go of connections."""
