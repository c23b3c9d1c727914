"""The part of the store that is the ledger, and what schedulers read of all nodes."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.exclusions import Exclusions
from nodetracker.model.candidate import CandidateCursor, CandidatePage
from nodetracker.model.claim import (
    Claim,
    ClaimRequest,
    ClaimState,
    Migration,
    MigrationStatus,
    PlacedRequest,
    Requirement,
)
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeRecord
from nodetracker.model.settings import AdmissionPolicy, CandidatePolicy
from nodetracker.ports.fleet import FleetStore
from nodetracker.ports.methods import repeatable

T = TypeVar("T")


class LedgerStore(Protocol):
    """Claims and migrations; any process with a store may call these.

    Every method is one ledger transaction and may raise the errors of `FleetStore`.
    """

    @repeatable
    def create_claim(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Claim:
        """Claim what a workload requests on one node.

        The same request again returns the same claim.

        Args:
            skip_locked: do not wait while another transaction has locked the
                node's row. Databases that cannot skip locked rows wait.

        Raises:
            ClaimRefusedError: it does not fit, or the node accepts no claims
                now; every reason is named.
            ClaimConflictError: its uuid belongs to another request.
            NodeBusyError: with `skip_locked`, the row is locked or does not
                exist; nothing was decided.
        """

    @repeatable
    def try_claim(
        self, request: ClaimRequest, host: str, nodename: str, policy: AdmissionPolicy
    ) -> Admission:
        """Decide about a claim as `create_claim` does, and write nothing.

        Raises:
            NotFoundError: the node does not exist.
        """

    @repeatable
    def admit_start(
        self,
        guest: Guest,
        host: str,
        nodename: str,
        claim_uuid: str,
        policy: AdmissionPolicy,
        is_trial: bool = False,
    ) -> Claim | None:
        """Charge a guest that its engine is about to start, and that is not on the node yet.

        The claim is one for what the guest takes beyond the claims of its workload, and
        replaces that of an earlier start. Whether the service is up, enabled or in maintenance
        is not looked at: schedulers obey that, a machine starts its own guests all the same.

        Args:
            guest: with all that it takes when it runs.
            claim_uuid: a new one for each start.
            is_trial: only decide, and write nothing.

        Returns:
            The claim, None if its workload's claims cover all of it or it is a trial.

        Raises:
            ClaimRefusedError: it does not fit; every reason is named.
            NotFoundError: the node does not exist.
        """

    @repeatable
    def end_start(self, workload_uuid: str, host: str, nodename: str) -> None:
        """Release the claims of `admit_start` of a guest that its engine has stopped.

        The guest, if it is stored, is off from the same commit on, and takes only its disk.

        Raises:
            NotFoundError: the node does not exist.
        """

    @repeatable
    def confirm_claim(self, uuid: str) -> Claim:
        """Record that a claim's guest exists; the claim no longer expires.

        Raises:
            NotFoundError: no such claim.
            RefusedError: it is released.
        """

    @repeatable
    def renew_claim(self, uuid: str, policy: AdmissionPolicy) -> Claim:
        """Postpone the expiry of a held claim, counted from now.

        Raises: as `confirm_claim`.
        """

    @repeatable
    def abort_claim(self, uuid: str) -> Claim:
        """Release a claim; one that is released already is left alone.

        A guest of it that is listed counts as unclaimed from the same commit on.
        A migration whose destination it is becomes cancelled.

        Raises:
            NotFoundError: no such claim.
            RefusedError: it is the source of a running migration.
        """

    @repeatable
    def list_claims(
        self,
        host: str | None = None,
        state: ClaimState | None = None,
        uuid: str | None = None,
    ) -> list[Claim]:
        """Return claims, oldest first."""

    @repeatable
    def create_migration(
        self,
        request: ClaimRequest,
        host: str,
        nodename: str,
        policy: AdmissionPolicy,
        skip_locked: bool = False,
    ) -> Migration:
        """Claim a move's destination in addition to its source, in one transaction on both nodes.

        The destination is admitted as any claim, on the source's own node on
        top of the source. The source's host may be down. The same request
        again returns the same migration.

        Args:
            skip_locked: as `create_claim`, for the destination's row; the
                source's is always waited for.

        Raises:
            MoveSourceError: the source cannot be moved; every reason is named.
            ClaimRefusedError: the destination does not fit; every reason is named.
            ClaimConflictError: the claim's uuid belongs to another request.
            NodeBusyError: as `create_claim`, of the destination.
            RequestError: the request is not one for a move.
        """

    @repeatable
    def confirm_migration(self, uuid: str) -> Migration:
        """Release the source and confirm the destination, in one transaction on both nodes.

        A guest of the source that is still listed counts as unclaimed from
        the same commit on. A migration that is confirmed already is left alone.

        Raises:
            NotFoundError: no such migration.
            RefusedError: it was reverted or cancelled, or its destination was released.
        """

    @repeatable
    def revert_migration(self, uuid: str) -> Migration:
        """Release the destination, in one transaction on both nodes.

        A migration that is reverted already is left alone.

        Raises:
            NotFoundError: no such migration.
            RefusedError: it was confirmed or cancelled, or its source was released
                while its destination counts.
        """

    def set_migration_status(self, uuid: str, status: MigrationStatus) -> Migration:
        """Record a migration's progress, or that it failed; its claims are left alone.

        Raises:
            NotFoundError: no such migration.
            RefusedError: it is further already, has ended, or that would end it.
        """

    @repeatable
    def list_migrations(
        self,
        host: str | None = None,
        uuid: str | None = None,
        status: MigrationStatus | None = None,
    ) -> list[Migration]:
        """Return migrations, oldest first; `host` is either side's."""


class SchedulerStore(FleetStore, LedgerStore, Protocol):
    """What admission needs of all nodes, and the claims that schedulers make there."""

    @repeatable
    def find_candidates(
        self,
        request: ClaimRequest,
        policy: CandidatePolicy,
        limit: int,
        after: CandidateCursor | None = None,
    ) -> CandidatePage:
        """Return nodes that may accept a claim, the best first.

        It excludes only nodes that the ledger would refuse now. NUMA cells, PCI
        devices and the usage of further resource classes are not considered.
        The same request returns the same nodes in the same order. Of `SPREAD` order these
        are the first ones from a place that the request gives, and take up to two statements.

        Args:
            request: its host and nodename, if set, restrict the nodes.
            limit: the most nodes to return; a page has fewer only if none follow.
            after: `CandidatePage.next` of the page before; pages neither skip
                nor repeat a node whose usage does not change.
        """

    @repeatable
    def find_claims(self, uuids: Collection[str]) -> list[Claim]:
        """Return the claims with these uuids, by one statement; others are left out."""

    @repeatable
    def find_guests(self, workloads: Collection[str]) -> frozenset[str]:
        """Return those of some workloads that have a guest on any node, by one statement."""

    @repeatable
    def find_requirements(self, uuids: Collection[str]) -> dict[str, Requirement]:
        """Return uuid of a claim -> what it asked for, by one statement.

        Claims that are older than the column, or whose column is damaged, are left out.
        """

    @repeatable
    def create_claims(
        self, placed: Sequence[PlacedRequest], policy: AdmissionPolicy
    ) -> list[Claim | None]:
        """Grant requests, each on its node, in one transaction that waits for no node's row.

        A request that was granted before has that claim. None is for one that was not
        granted: `create_claim` says why, unless it grants it.

        Args:
            placed: with a uuid each of their own.
        """

    def rehearse(self, work: "Callable[[SchedulerStore], T]") -> T:
        """Return what a function returns with a store that keeps nothing of what it writes there.

        All its calls are one transaction, which is rolled back: each sees what those before
        it have written, and the nodes that they wrote stay locked until the end. Observers
        learn nothing. It may be called again, as any transaction.

        Raises:
            ForbiddenError: this process has no database.
        """

    @repeatable
    def load_hosts(self, hosts: Collection[str]) -> list[NodeRecord]:
        """Return the nodes of hosts as `load_nodes` does, by as many statements as of one."""

    @repeatable
    def load_ledger_nodes(
        self, node_ids: Collection[int], requests: Collection[ClaimRequest] | None = None
    ) -> list[LedgerNode]:
        """Return what admission needs of these nodes, by at most four statements.

        Deleted nodes are left out. Without a lock, a node's claims, guests and
        devices may be newer than its row.

        Args:
            requests: claims, guests and devices by which none of them is evaluated may
                be left out.
        """

    @repeatable
    def count_exclusions(self, request: ClaimRequest, policy: AdmissionPolicy) -> Exclusions:
        """Count the nodes that each check excludes, independent of each other.

        The request's host and nodename restrict the nodes. Of more than
        `MAX_EVALUATED` nodes, NUMA cells, PCI devices and amounts of further resource
        classes are evaluated only on as many that pass all other checks. For a fleet
        it takes up to a second; call it when no candidate was found.
        """

    @repeatable
    def find_nearest(self, request: ClaimRequest, policy: AdmissionPolicy, limit: int) -> list[int]:
        """Return the ids of the nodes that may accept a claim first, by one statement.

        They are in the order of `NearMiss.rank`, as far as columns decide it: NUMA cells, PCI
        devices and amounts of further resource classes are not considered.
        """
