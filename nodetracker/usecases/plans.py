"""Plan where the guests of hosts that go would fit elsewhere; nothing is written."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.departures import (
    Departure,
    HostPlan,
    PlannedMove,
    Remaining,
    Stranded,
    list_departures,
)
from nodetracker.accounting.ledger.exclusions import NearMiss, evaluate_miss
from nodetracker.accounting.ledger.packing import Packing, kind_of, pack
from nodetracker.accounting.ledger.transaction import SharedNode, share_node
from nodetracker.model.candidate import CandidateCursor
from nodetracker.model.claim import ClaimRequest, MigrationType, MoveRequest
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.settings import SchedulerSettings
from nodetracker.ports import AdmissionPolicy, CandidatePolicy, SchedulerStore

NEAREST = 3
"""Nodes that are named of those that refuse a guest."""


class HostPlanner:
    """Plans for hosts that go; keeps nothing between them."""

    def __init__(
        self, store: SchedulerStore, policy: AdmissionPolicy, settings: SchedulerSettings
    ) -> None:
        self._store = store
        self._policy = policy
        self._settings = settings

    def plan(
        self,
        hosts: Sequence[str],
        max_guests: int | None = None,
        migration_type: MigrationType = MigrationType.MIGRATION,
    ) -> HostPlan:
        """Return a node for each guest of these hosts, or for as many as possible.

        Args:
            migration_type: of the moves; only evacuations use spare hosts.

        Raises:
            NotFoundError: a host has no nodes.
            RequestError: a host is named twice, or they have more guests.
        """
        leaving, remaining = self._list_leaving(hosts)
        if max_guests is not None and len(leaving) > max_guests:
            reason = f"have {len(leaving)} guests, more than the {max_guests} of one plan"
            raise RequestError("hosts", reason)
        policy = policy_for(self._policy, leaving)
        search = _Search(self._store, policy, self._settings, hosts, leaving, migration_type)
        packing = search.run()
        by_uuid = {departure.request.uuid: departure for departure in leaving}
        moves = [
            PlannedMove(by_uuid[request.uuid], node.host, node.nodename)
            for request, node_id in packing.places
            for node in [packing.nodes[node_id].node]
        ]
        stranded = [
            Stranded(by_uuid[request.uuid], tuple(search.explain(request, packing.nodes)))
            for request in packing.left
        ]
        is_certain = packing.is_certain and search.is_complete
        return HostPlan(tuple(hosts), tuple(moves), tuple(stranded), tuple(remaining), is_certain)

    def _list_leaving(self, hosts: Sequence[str]) -> tuple[list[Departure], list[Remaining]]:
        leaving: list[Departure] = []
        remaining: list[Remaining] = []
        for index, host in enumerate(hosts):
            if host in hosts[:index]:
                raise RequestError("hosts", f"{host} is named twice")
            records = self._store.load_nodes(host)
            if not records:
                raise NotFoundError(f"host {host} has no nodes")
            claims = [uuid for record in records for uuid in record.claims]
            asked = self._store.find_requirements(claims)
            for record in records:
                for item in list_departures(record, asked):
                    (leaving if isinstance(item, Departure) else remaining).append(item)  # type: ignore[arg-type]
        return leaving, remaining


def policy_for(policy: AdmissionPolicy, leaving: Iterable[Departure]) -> AdmissionPolicy:
    """Return the policy with the kinds of devices that guests hold as aliases."""
    own = {name: alias for item in leaving for name, alias in item.aliases.items()}
    return replace(policy, aliases={**policy.aliases, **own})


class _Search:
    """Reads nodes that may take guests until a plan is found, or no more are left."""

    def __init__(
        self,
        store: SchedulerStore,
        policy: AdmissionPolicy,
        settings: SchedulerSettings,
        hosts: Sequence[str],
        leaving: Sequence[Departure],
        migration_type: MigrationType,
    ) -> None:
        self._store = store
        self._policy = policy
        self._search = CandidatePolicy(policy.service_down_time, settings.multipliers)
        self._hosts = frozenset(hosts)
        self._type = migration_type
        self._requests = [departure.request for departure in leaving]
        self._assumed = {item.request.uuid for item in leaving if item.is_derived}
        self._nodes: dict[int, SharedNode] = {}
        self._open: dict[Hashable, tuple[ClaimRequest, CandidateCursor | None]] = {
            kind_of(request): (self._as_move(request), None) for request in self._requests
        }
        self._size = max(1, settings.nodes_to_weigh or 100)

    @property
    def is_complete(self) -> bool:
        """Whether every node has been read that may take any of the guests."""
        return not self._open

    def run(self) -> Packing:
        """Return the first packing with a node for each guest, or else that of all nodes."""
        wanted = set(self._open)
        while True:
            self._read_more(wanted)
            nodes = list(self._nodes.values())
            packing = pack(self._requests, nodes, self._policy, self._assumed)
            wanted = {kind_of(request) for request in packing.left} & self._open.keys()
            if not wanted:
                return packing
            self._size *= 2

    def _as_move(self, request: ClaimRequest) -> ClaimRequest:
        """Return a request as the search for the move's destination takes it."""
        return replace(request, migration=MoveRequest(request.uuid, self._type, ""))

    def _read_more(self, kinds: Iterable[Hashable]) -> None:
        """Read further nodes for some kinds of requests, the best first."""
        found: dict[int, None] = {}
        for kind in kinds:
            request, after = self._open[kind]
            page = self._store.find_candidates(request, self._search, self._size, after)
            found |= dict.fromkeys(node.id for node in page.nodes if node.host not in self._hosts)
            if page.next is None:
                del self._open[kind]
            else:
                self._open[kind] = request, page.next
        new = [node_id for node_id in found if node_id not in self._nodes]
        loaded = {node.id: share_node(node) for node in self._store.load_ledger_nodes(new)}
        self._nodes |= {node_id: loaded[node_id] for node_id in new if node_id in loaded}

    def explain(self, request: ClaimRequest, nodes: Mapping[int, SharedNode]) -> list[NearMiss]:
        """Return the nearest nodes that refuse a request beside all that are planned.

        Without nodes that the search found, these are the nearest of those that it excludes.
        """
        if not nodes:
            excluded = self._store.count_exclusions(self._as_move(request), self._policy)
            near = [excluded.nearest, *excluded.further]
            return [miss for miss in near if miss and miss.host not in self._hosts][:NEAREST]
        misses = [
            evaluate_miss(shared.node.host, shared.node.nodename, admission)
            for shared in nodes.values()
            for admission in [
                evaluate_claim(request, shared.see(request.workload.uuid), self._policy)
            ]
        ]
        return sorted(filter(None, misses), key=lambda miss: miss.rank)[:NEAREST]
