"""The parts of the store that agents and operators write, and all of the store."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from nodetracker.model.change import ApplyResult, NodeChange
from nodetracker.model.claim import Claim, SplitBrain
from nodetracker.model.credential import Credential, JoinToken
from nodetracker.model.node import HostSums, HostVersions
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import (
    AgentKey,
    AuditState,
    HostNews,
    Incarnation,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.tolerance import HostTolerance, NodeRoom
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.ports.fleet import FleetReader, FleetStore, ReadingStore
from nodetracker.ports.ledger import LedgerStore, SchedulerStore
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
            HostNameError: the host is new, and its name can be taken for another's.
        """

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
        known_calls: int | None = None,
    ) -> HostNews | None:
        """Write the heartbeat's columns by one UPDATE, with the database's time.

        Args:
            host_time: the agent's own clock, whose skew is stored; None = this process's.
            is_last: the process ends, so that the service is down until it is taken over.
            known_calls: `HostNews.call_count` as last read; None = calls are not taken now.

        Returns:
            The host's news by a conductor; `UNREAD_NEWS` if more calls were made than are
            known; otherwise None.

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
    def sum_versions(self, host: str, binary: str) -> HostSums:
        """Return the sums of what `load_versions` lists, by one statement that returns one row.

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
        uuid exists under another host is refused.

        Raises:
            FencedError: a row or the service has a newer epoch.
        """

    @repeatable
    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """Make these the host's unresolved warnings: raise, count again, resolve.

        One that was counted within `COUNT_INTERVAL` only gets its new message.
        Warnings reported by others (`REPORTED_BY_OTHERS`) are kept for an hour, those of
        `LASTING` kinds until they are resolved.

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

    def take_news(self, agent: AgentKey) -> HostNews:
        """Return what others have written about an agent's host, and take its calls.

        Without a call by one statement; each call is returned once. They are `UNREAD_NEWS`
        if another agent holds the host.
        """

    @repeatable
    def answer_call(self, host: str, call_id: int, answer: Mapping[str, Any]) -> None:
        """Store the answer of a call that the host's agent took; do nothing if it is gone.

        Args:
            answer: with either a value or an error, as `rpc.interface.carry_out` returns it.
        """


class CallStore(FleetStore, Protocol):
    """Calls of agents, each a row that the host's agent takes and answers."""

    def create_call(
        self, host: str, method: str, arguments: Mapping[str, Any], sender: str, lifetime: timedelta
    ) -> int:
        """Store a call and return its id; delete those that have expired.

        The host's heartbeats find out by its number of calls, which is raised, too.

        Args:
            method: of `HostAgent`, with its arguments as plain JSON.
            sender: the process that calls, for the agent's log.

        Raises:
            NotFoundError: the host has no agent.
            BusyError: the host has too many calls that have not expired.
            RequestError: the arguments are too long.
        """

    @repeatable
    def find_answer(self, host: str, call_id: int) -> Mapping[str, Any] | None:
        """Return the answer of a call of a host, None as long as it has none."""


class RemovalStore(Protocol):
    """Removals of providers; each is recorded in the transaction that deletes the node's row.

    Every method may raise the errors of `FleetStore`.
    """

    @repeatable
    def list_provider_removals(self, host: str | None = None) -> list[ProviderRemoval]:
        """Return removals that are not finished, the oldest first, by one statement."""

    def take_provider_removals(self, query: RemovalQuery) -> list[ProviderRemoval]:
        """Lease the removals that are due, the oldest first; without any, by one statement.

        Those of nodes that exist again are deleted instead.
        """

    def fail_provider_removal(
        self, provider_uuid: str, error: str, retry_seconds: float, host: str | None = None
    ) -> None:
        """Record why a removal that was taken failed; it is due again after `retry_seconds`.

        Args:
            host: only the removal of this host's node.
        """

    @repeatable
    def finish_provider_removal(self, provider_uuid: str, host: str | None = None) -> None:
        """Delete a removal that was taken, because the provider exists no longer.

        One that was recorded since is kept: the node was created and deleted again.

        Args:
            host: only the removal of this host's node.
        """


class OperatorStore(ReadingStore, LedgerStore, RemovalStore, Protocol):
    """Services and nodes for administration, all lists, the ledger, and removals of providers.

    Deletions and renames are not repeatable: a second call reports that
    nothing exists under the name.
    """

    @repeatable
    def set_service(self, host: str, binary: str, change: ServiceChange) -> ServiceRecord:
        """Change what an administrator decides about a service; heartbeat columns are left alone.

        Raises:
            NotFoundError: no such service.
            ServiceChangedError: it has another version than the change is for.
        """

    @repeatable
    def silence_warning(
        self, id_: int, reason: str, seconds: int, user: str | None
    ) -> WarningRecord:
        """Silence a warning from now on, which replaces an earlier silence; record it.

        Until then, or until it is resolved, it does not count.

        Args:
            id_: of its row.
            seconds: for how long, by the database's clock.
            user: who does it.

        Raises:
            NotFoundError: no such warning.
            RefusedError: it is resolved.
        """

    def delete_service(self, host: str, binary: str, service_down_time: int) -> None:
        """Delete a service whose heartbeats have ended, with its nodes and warnings.

        Raises:
            NotFoundError: no such service.
            RefusedError: its last heartbeat is at most `service_down_time` seconds old.
        """

    def rename_host(self, old: str, new: str, binary: str, expected: ServiceRecord | None) -> int:
        """Move a host's rows to another host name, raise their epoch; return the number of nodes.

        The node that has the host's old name is renamed too; every node keeps its uuid.

        Args:
            expected: the services row from which the caller concluded that the
                host's agent does not run, None when it did not exist.

        Raises:
            NotFoundError: nothing exists under the old name.
            RefusedError: something exists under the new name.
            ConflictError: the services row has changed since; check it again.
        """

    def take_over_node(
        self, host: str, nodename: str, to: str | None, service_down_time: int
    ) -> str:
        """Give a node of a host that is down, with its claims, to another one; return that host.

        The node gets the name by which the other host lists it. Its generation rises, and its
        epoch is that of its new host, so that its former agent writes nothing.

        Args:
            to: None = the only host that was refused the node.

        Raises:
            NotFoundError: no such node, or no agent of the other host.
            RefusedError: the host is up, or it is not clear who is to have the node.
            ConflictError: the node has changed meanwhile.
        """

    def adopt_uuid(self, host: str, nodename: str, before: str, uuid: str) -> None:
        """Give a node the uuid of a provider in placement, and record that in the history.

        Args:
            before: the node's uuid on which the decision rests.

        Raises:
            NotFoundError: no such node.
            ConflictError: the node has another uuid by now.
            RefusedError: another node has the uuid.
        """

    def accept_node(self, host: str, nodename: str) -> None:
        """Take a node's present capacity as the largest seen, and record that in the history.

        Its warning `capacity_jump` is resolved. A node that was held is opened by its host's
        next audit.

        Raises:
            NotFoundError: no such node.
        """

    def delete_node(self, host: str, nodename: str) -> None:
        """Delete one row with its guests and devices; record that, and its provider's removal.

        Raises:
            NotFoundError: no such node.
        """

    def purge_host(self, host: str, service_down_time: int) -> int:
        """Delete a host's nodes with all that they hold, claims included; return how many.

        Open moves to the host are cancelled; of those from it, the ones that run are in error.
        Ten nodes are a transaction, so that some are deleted if it is interrupted.

        Raises:
            NotFoundError: the host has no nodes.
            RefusedError: its agent is alive and would create them again.
        """

    def purge(
        self, before: datetime, tables: Collection[str] = (), is_part: bool = False
    ) -> Mapping[str, int]:
        """Delete what ended before `before`; return table -> rows deleted.

        History, resolved warnings, migrations, released claims to which no
        migration refers any more, trends, and removals of providers that nobody attempted.
        A request whose claim was purged is a new one.

        Args:
            tables: only these; none = all.
            is_part: delete at most 1,000 rows of each table, in one transaction each.
        """


class WatchStore(AgentStore, FleetReader, Protocol):
    """The services row and warnings of one process, and all nodes, listed and sampled."""

    @repeatable
    def sample_trends(self) -> None:
        """Store the trends of this hour and of the days that are over, unless they are stored.

        Deletes those that are past the time for which they are kept.
        """


class HostStore(WatchStore, SchedulerStore, RemovalStore, Protocol):
    """An agent's own rows, what claims on its host need, and its deleted nodes' providers."""


class Store(HostStore, OperatorStore, CallStore, Protocol):
    """All of the store; conductors serve it to processes without a database."""


class ToleranceStore(SchedulerStore, FleetReader, Protocol):
    """What shows which losses of hosts the fleet survives."""

    def list_rooms(self, service_down_time: int) -> list[NodeRoom]:
        """Return what all nodes have left by their rows, in order of id, by one statement."""

    @repeatable
    def save_tolerances(
        self, answers: Collection[HostTolerance], gone: Collection[str], lifetime_seconds: int
    ) -> None:
        """Store answers, delete those for hosts that are gone, and note that the others hold.

        Args:
            answers: with their plans; those without a time were found now.
            lifetime_seconds: after which answers are too old.
        """


class CredentialStore(Protocol):
    """Join tokens and credentials of agents, by the SHA-256 of each.

    Every method is one transaction and may raise the errors of `FleetStore`.
    """

    def create_join_token(
        self, token_hash: str, host: str | None, uses: int, lifetime: timedelta, created_by: str
    ) -> JoinToken:
        """Store a join token, and delete those that have expired."""

    def join_agent(
        self, token_hash: str, host: str, agent_id: str, secret_hash: str, address: str
    ) -> Credential:
        """Exchange a use of a join token for the credential of a host.

        The same secret again returns the same credential and uses nothing up.

        Raises:
            AuthenticationError: the token is unknown, has expired or is used up.
            ForbiddenError: it does not join this host; the message says which one does.
            HostNameError: the host is new, and its name can be taken for another's.
        """

    def find_credential(self, secret_hash: str, address: str) -> Credential:
        """Return a valid credential, and store its use every `USE_INTERVAL`.

        The first use of a new one ends the one before it.

        Raises:
            AuthenticationError: it is unknown, revoked or was replaced. One that was
                replaced raises the warning ``credential_reused`` of its host.
        """

    def find_hosts(self, secret_hashes: Collection[str]) -> Mapping[str, str]:
        """Return secret -> host of those that are a credential, its next one or the one before.

        It says whose calls may be read, and nothing about what they may do.
        """

    def renew_credential(self, host: str, secret_hash: str) -> Credential:
        """Store the next credential of a host; both are valid until the new one is used.

        Raises:
            NotFoundError: the host has none that is valid.
        """

    def revoke_credential(self, host: str) -> Credential:
        """End a host's credential; only a join token for the host gives it another.

        Its agent's service is down from then on, as after a last heartbeat, and no claim
        that was decided on before is granted later.

        Raises:
            NotFoundError: the host has none.
        """

    def report_for_news(
        self,
        secret_hash: str,
        authorize: Callable[[Credential], Mapping[str, Any]],
        expires_at: datetime | None = None,
    ) -> HostNews | None:
        """Store the heartbeat of a credential's agent and return its host's news, at once.

        One transaction, without a waiting call of two statements; each call is returned
        once. None, and nothing is stored, for a credential that
        `CredentialStore.find_credential` has to decide about, or to store the use of.

        Args:
            authorize: returns the arguments of `report_state`, or refuses them.
            expires_at: nothing is written later: a heartbeat that was held up must not
                show an agent alive that has ended.

        Raises:
            RpcUnavailableError: it is later than `expires_at`.
        """

    def list_credentials(self) -> list[Credential]:
        """Return the credentials of all hosts, revoked ones included, in order of host."""
