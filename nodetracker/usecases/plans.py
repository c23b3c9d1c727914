"""Plan where the guests of hosts that go would fit elsewhere; nothing is written."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import chain, islice

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import evaluate_candidate, evaluate_claim
from nodetracker.accounting.ledger.departures import (
    Departure,
    HostPlan,
    PlannedMove,
    Remaining,
    Stranded,
    list_departures,
)
from nodetracker.accounting.ledger.exclusions import NearMiss, evaluate_miss
from nodetracker.accounting.ledger.packing import (
    Packing,
    kind_of,
    measure_lack,
    measure_room,
    pack,
    place_in_turn,
)
from nodetracker.accounting.ledger.transaction import (
    LockedNode,
    SharedNode,
    assume_locked,
    share_node,
)
from nodetracker.model.claim import ClaimRequest, MigrationType, MoveRequest
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.settings import SchedulerSettings
from nodetracker.ports import AdmissionPolicy, CandidatePolicy, SchedulerStore

NEAREST = 3
"""Nodes that are named of those that refuse a guest."""

HOSTS_AT_ONCE = 50
"""Whose guests are read together."""

_READ_FIRST = 10
"""Nodes whose states are read first for a kind of guest; then twice as many each time."""

_MISSES = 20
"""Nodes that are evaluated to find the nearest ones, those that lack the least."""


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
        leaving, remaining, own = self._list_leaving(hosts)
        if max_guests is not None and len(leaving) > max_guests:
            reason = f"have {len(leaving)} guests, more than the {max_guests} of one plan"
            raise RequestError("hosts", reason)
        policy = policy_for(self._policy, leaving)
        search = _Search(self._store, policy, self._settings, hosts, own, leaving, migration_type)
        packing = search.run()
        by_uuid = {departure.request.uuid: departure for departure in leaving}
        moves = [
            PlannedMove(by_uuid[request.uuid], node.host, node.nodename)
            for request, node_id in packing.places
            for node in [packing.nodes[node_id].node]
        ]
        reasons = search.explain(packing)
        stranded = [
            Stranded(by_uuid[request.uuid], reasons[kind_of(request)]) for request in packing.left
        ]
        return HostPlan(
            tuple(hosts), tuple(moves), tuple(stranded), tuple(remaining), packing.is_certain
        )

    def _list_leaving(
        self, hosts: Sequence[str]
    ) -> tuple[list[Departure], list[Remaining], set[int]]:
        """Return what leaves hosts, what is not planned, and the ids of their nodes."""
        for host, count in Counter(hosts).items():
            if count > 1:
                raise RequestError("hosts", f"{host} is named twice")
        leaving: list[Departure] = []
        remaining: list[Remaining] = []
        own: set[int] = set()
        for part in in_parts(hosts):
            records = self._store.load_hosts(part)
            for host in part:
                if not any(record.host == host for record in records):
                    raise NotFoundError(f"host {host} has no nodes")
            own |= {record.id for record in records}
            claims = [uuid for record in records for uuid in record.claims]
            asked = self._store.find_requirements(claims)
            for item in chain.from_iterable(list_departures(record, asked) for record in records):
                if isinstance(item, Departure):
                    leaving.append(item)
                else:
                    remaining.append(item)
        return leaving, remaining, own


def in_parts(hosts: Iterable[str]) -> Iterator[list[str]]:
    """Yield hosts, as many at a time as are read together."""
    left = iter(hosts)
    while part := list(islice(left, HOSTS_AT_ONCE)):
        yield part


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
        own: Collection[int],
        leaving: Sequence[Departure],
        migration_type: MigrationType,
    ) -> None:
        self._store = store
        self._policy = policy
        self._search = CandidatePolicy(policy.service_down_time, settings.multipliers)
        self._hosts = frozenset(hosts)
        self._own = own
        self._type = migration_type
        self._requests = [departure.request for departure in leaving]
        self._assumed = {item.request.uuid for item in leaving if item.is_derived}
        self._nodes: dict[int, SharedNode] = {}
        self._size = max(1, settings.nodes_to_weigh or 100)
        self._kinds = {kind_of(request): request for request in self._requests}
        self._open = set(self._kinds)

    def run(self) -> Packing:
        """Return the first packing with a node for each guest, or else that of all nodes."""
        candidates = {kind: self._list_nodes(kind) for kind in self._kinds}
        packing = place_in_turn(self._requests, candidates, self._policy)
        if not packing.left:
            return packing
        for others in candidates.values():  # which may make room elsewhere
            for _ in islice(others, self._size):
                pass
        nodes = list(self._nodes.values())
        return pack(self._requests, nodes, self._policy, self._assumed, are_all=not self._open)

    def _list_nodes(self, kind: Hashable) -> Iterator[SharedNode]:
        """Yield the nodes that may take requests of a kind, the best first, read as they are used.

        They are found as for the destination of a move.
        """
        request = self._as_move(self._kinds[kind])
        size, number, after = self._size, _READ_FIRST, None
        while True:
            page = self._store.find_candidates(request, self._search, size, after)
            ids = (node.id for node in page.nodes if node.host not in self._hosts)
            while part := list(islice(ids, number)):
                self._load(part)
                yield from (self._nodes[node_id] for node_id in part if node_id in self._nodes)
                number *= 2
            if page.next is None:
                self._open.remove(kind)
                return
            size, after = size * 2, page.next

    def _load(self, node_ids: Iterable[int]) -> None:
        new = [node_id for node_id in node_ids if node_id not in self._nodes]
        for node in self._store.load_ledger_nodes(new, self._requests):
            self._nodes[node.id] = share_node(node)

    def _as_move(self, request: ClaimRequest) -> ClaimRequest:
        """Return a request as the search for the move's destination takes it."""
        return replace(request, migration=MoveRequest(request.uuid, self._type, ""))

    def explain(self, packing: Packing) -> dict[Hashable, tuple[NearMiss, ...]]:
        """Return for each kind of requests that are left the nearest nodes that refuse one.

        They refuse it beside all that are planned. Without nodes that the search found, these
        are the nearest of those that it excludes.
        """
        kinds = {kind_of(request): request for request in packing.left}
        if not packing.nodes:
            return {kind: self._find_excluded(request) for kind, request in kinds.items()}
        rooms = [(shared, measure_room(shared).left) for shared in packing.nodes.values()]
        found: dict[Hashable, tuple[NearMiss, ...]] = {}
        for kind, request in kinds.items():
            near = nsmallest(_MISSES, rooms, lambda room: measure_lack(request, room[1]))  # noqa: B023
            found[kind] = _choose_nearest(
                (node, evaluate_claim(request, node, self._policy))
                for shared, _ in near
                for node in [shared.see(request.workload.uuid)]
            )
        return found

    def _find_excluded(self, request: ClaimRequest) -> tuple[NearMiss, ...]:
        """Return the nearest of the nodes that the search for a request excludes."""
        move = self._as_move(request)
        near = self._store.find_nearest(move, self._policy, _MISSES + len(self._own))
        ids = [node_id for node_id in near if node_id not in self._own][:_MISSES]
        return _choose_nearest(
            (node, evaluate_candidate(move, node, self._policy))
            for found in self._store.load_ledger_nodes(ids, [move])
            for node in [assume_locked(found, move.workload.uuid)]
        )


def _choose_nearest(evaluated: Iterable[tuple[LockedNode, Admission]]) -> tuple[NearMiss, ...]:
    misses = (evaluate_miss(node.host, node.nodename, admission) for node, admission in evaluated)
    return tuple(sorted(filter(None, misses), key=lambda miss: miss.rank)[:NEAREST])
