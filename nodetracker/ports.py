"""The ports: what the agent's core asks of drivers and of the database.

Each has a contract suite below ``tests/contract`` that every implementation
passes, and a fake that ships in the package (``virt/fake``, ``db/memory``).
"""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from nodetracker.accounting.admission import Admission
from nodetracker.model.audit import AuditOutcome, AuditReport
from nodetracker.model.change import HistoryEntry, NodeChange
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, SplitBrain
from nodetracker.model.event import NodeEvent
from nodetracker.model.fleet import LedgerNode, LedgerStamps
from nodetracker.model.migration import Migration, MigrationStatus
from nodetracker.model.node import HostSnapshot, HostStamps, NodeListing, NodeRecord
from nodetracker.model.notification import Notification
from nodetracker.model.pci_request import Alias
from nodetracker.model.service import AuditState, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord


class DriverCapability(enum.Enum):
    """What a driver can do; ask for one of these and never for a driver's name."""

    REMOTE_NODES = "remote_nodes"  # its nodes are not necessarily this machine
    UPTIME = "uptime"
    POWER_ACTIONS = "power_actions"
    EVENTS = "events"
    INSTANCES = "instances"  # its guests are instances alone
    CONTAINERS = "containers"  # its guests are containers alone


POWER_ACTIONS = ("reboot", "shutdown", "startup")


class Driver(Protocol):
    """Facts and guests of the nodes that one hypervisor, engine or file stands for.

    Called from several threads at once. Every call ends within the probe
    budget, whatever the source does.
    """

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """What this driver can do."""

    def init_host(self) -> None:
        """Get ready; called once before anything else.

        Raises:
            ConfigError: the driver's own options cannot be used.
        """

    def get_available_nodes(self) -> NodeListing:
        """Return the nodes that are there now, and which sources did not answer.

        Raises:
            DriverUnavailableError: no source answers; all rows stay.
            ConfigError: two sources give one nodename; the message names both.
        """

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read one node. A probe that fails is a failed fact, not an exception.

        Raises:
            DriverUnavailableError: the node cannot be asked at all.
        """

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Begin to tell what changes, until `close`; called once, after `init_host`.

        An event says which node to read again, never what it has. Events may
        be lost with the source's connection; its loss and return are events
        themselves.

        Args:
            callback: is called from the driver's own threads; it returns at
                once and does not raise.

        Raises:
            DriverFeatureError: this driver tells nothing of its own accord.
        """

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return how long the node has been up.

        Raises:
            DriverFeatureError: this driver cannot tell.
        """

    def host_power_action(self, action: str) -> None:
        """Do ``reboot``, ``shutdown`` or ``startup`` to the host.

        Raises:
            DriverFeatureError: this driver cannot.
        """

    def close(self) -> None:
        """Let go of connections; nothing is called afterwards."""


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


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What a ledger transaction goes by, beside what is stored.

    Attributes:
        service_down_time: seconds of silence after which a service is down.
        claim_timeout: seconds after which a held claim may expire.
        is_packing: NUMA cells are filled one after the other instead of evenly.
        aliases: names by which claims ask for PCI devices.
    """

    service_down_time: int
    claim_timeout: int
    is_packing: bool = False
    aliases: Mapping[str, Alias] = field(default_factory=dict)


class Store(Protocol):
    """The rows. Times are UTC and the database's; every method is one transaction.

    Every method may raise StoreUnavailableError (try again later; nothing was
    written, unless the answer to a commit was lost) or SchemaError (run
    ``nodetracker-manage db sync``).
    """

    # The agent's own path.

    def load_stamps(self, host: str, binary: str) -> HostStamps:
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
        """Return a host's workloads that hold claims on another node too, by one statement.

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

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> None:
        """Make these the host's unresolved warnings: raise, count again, resolve.

        What others report (`REPORTED_BY_OTHERS`) stays until it is an hour old.

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
        seen: ServiceRecord | None,
    ) -> ServiceRecord:
        """Make or take the services row and raise its epoch and that of the host's nodes.

        Args:
            seen: the row on which the decision to take it rests, None when
                there was none.

        Raises:
            ConflictError: the row is another by now; decide again.
        """

    def beat(
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

    def rename_host(self, old: str, new: str, binary: str, seen: ServiceRecord | None) -> int:
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
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
    ) -> Claim:
        """Hold what a workload asks for on one node, in one ledger transaction.

        The same request again answers the same claim.

        Raises:
            ClaimRefusedError: it does not fit, or the node takes none now;
                every reason is named.
            ClaimConflictError: its uuid stands for another request.
        """

    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
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

    def renew_claim(self, uuid: str, terms: LedgerTerms) -> Claim:
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

    # Schedulers.

    def load_ledger_stamps(self) -> LedgerStamps:
        """Return the stamps of all hosts' nodes, their services' gates and the time.

        One statement, however many nodes there are.
        """

    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """Return what admission needs of these nodes, by a fixed number of statements.

        One that is gone is left out. Stamps are read before what hangs below
        them, so what is newer than its stamp is read again.
        """

    def create_migration(
        self, request: ClaimRequest, host: str, nodename: str, terms: LedgerTerms
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
            RequestError: it cannot be meant.
            RefusedError: it is for another host, or does not say which of several nodes.
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
