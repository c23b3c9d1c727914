"""Find a node for each of some claims so that all of them could be granted, one after the other.

The ledger's own rule decides, on copies of the nodes. Which claims fit together depends on the
node that each gets, and nobody can try all ways. So a few orders are tried: the largest claim
first, on the nodes as they are listed, then where it leaves the least, then at random; and a
claim that fits nowhere takes the place of another that also fits elsewhere. A packing with a
node for each claim is right. One without may have been overlooked unless `is_certain` is true.
"""

import itertools
import random
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.accounting.ledger.claims import grant_shared
from nodetracker.accounting.ledger.transaction import SharedNode
from nodetracker.accounting.numa.cells import measure_huge_pages
from nodetracker.model.amounts import PARTS, PCPU, Amounts
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.numa import may_use_huge_pages
from nodetracker.model.settings import AdmissionPolicy

SEEDS = (1, 2)
"""Of the orders at random."""

MAX_TRIED = 1000
"""Grants that are tried to exchange the places of all claims that are left, in each order."""


_RARE = 5
"""Of the sizes of a request, those of what only some nodes have."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where claims fit together.

    Attributes:
        places: (request, id of its node); on each node they are granted in this order.
        left: requests without a node.
        nodes: id -> node with all of its claims.
        is_certain: whether no packing has a node for each request.
    """

    places: tuple[tuple[ClaimRequest, int], ...]
    left: tuple[ClaimRequest, ...]
    nodes: Mapping[int, SharedNode]
    is_certain: bool = False


def place_in_turn(
    requests: Iterable[ClaimRequest],
    candidates: Mapping[Hashable, Iterator[SharedNode]],
    policy: AdmissionPolicy,
) -> Packing:
    """Return for each request, the largest first, the first of its candidates that accepts it.

    Requests of a kind share their candidates: a node that refuses one accepts no other one
    later, as it only gets fuller. One of a workload that a node knows is left as it is refused.

    Args:
        candidates: kind -> nodes, those that are preferred first; as many are taken as it needs.
    """
    nodes: dict[int, SharedNode] = {}
    first: dict[Hashable, SharedNode | None] = {}
    places: list[tuple[ClaimRequest, int]] = []
    left: list[ClaimRequest] = []
    for request in sorted(requests, key=measure_size, reverse=True):
        kind = kind_of(request)
        node = first[kind] if kind in first else next(candidates[kind], None)
        after: SharedNode | None = None
        while node is not None:
            shared = nodes.get(node.node.id, node)
            after = try_grant(request, shared, policy)
            if after is not None or _is_known(request, shared):
                break
            node = next(candidates[kind], None)
        first[kind] = node
        if node is None or after is None:
            left.append(request)
        else:
            nodes[node.node.id] = after
            places.append((request, node.node.id))
    return Packing(tuple(places), tuple(left), nodes)


def pack(
    requests: Sequence[ClaimRequest],
    nodes: Sequence[SharedNode],
    policy: AdmissionPolicy,
    assumed: Collection[str] = (),
    are_all: bool = True,
    refusals: "Refusals | None" = None,
) -> Packing:
    """Return a node for each request, or for as many as are found.

    Args:
        nodes: those that are preferred first.
        assumed: uuids of requests of which it is not known that they ask for no more than
            necessary; they make no answer certain.
        are_all: whether no other node may take any request; otherwise none may take those
            that are left.
        refusals: of the same nodes, by earlier packings.
    """
    fleet = _Fleet(nodes, requests, policy, refusals or Refusals())
    ordered = sorted(requests, key=fleet.measure, reverse=True)
    best: _Attempt | None = None
    for order in (_as_listed, _least_left, *map(_at_random, SEEDS)):
        attempt = _Attempt(fleet, order)
        attempt.place_all(ordered)
        if best is None or len(attempt.left) < len(best.left):
            best = attempt
        if all(map(fleet.lacks_node, best.left)):
            break
    assert best is not None
    known = [request for request in requests if request.uuid not in assumed]
    left = {kind_of(request): request for request in best.left if request.uuid not in assumed}
    lacks_sum = bool(left) and are_all and fleet.lacks_sum(known)
    is_certain = lacks_sum or any(map(fleet.lacks_node, left.values()))
    return Packing(tuple(best.list_places()), tuple(best.left), best.shared, is_certain)


def grant_alike(
    request: ClaimRequest, shared: SharedNode, policy: AdmissionPolicy
) -> Iterator[SharedNode]:
    """Yield a node with one more claim alike each time, until the ledger would refuse the next.

    Each is of a workload of its own.
    """
    for number in itertools.count():
        uuid = f"{request.uuid}-{number}"
        alike = replace(request, uuid=uuid, workload=replace(request.workload, uuid=uuid))
        try:
            shared = grant_shared(alike, shared, policy)[1]
        except NodetrackerError:
            return
        yield shared


def kind_of(request: ClaimRequest) -> Hashable:
    """Return what requests have in common that the same nodes accept."""
    amounts = request.amounts
    return (
        request.workload.kind,
        *(amounts[name] for name in PARTS),
        tuple(sorted(amounts.resources.items())),
        tuple(sorted(request.limits.items())),
        request.numa,
        request.numa_limits,
        request.pci_requests,
        request.required_traits,
    )


def measure_size(request: ClaimRequest) -> tuple[int, ...]:
    """Return what a request asks for, what is scarcest in most fleets first."""
    amounts, numa = request.amounts, request.numa
    return (
        sum(wanted.count for wanted in request.pci_requests),
        sum(amounts.resources.values()),
        amounts.memory_mb if may_use_huge_pages(numa) else 0,
        amounts.pcpus,
        0 if numa is None else len(numa.cells),
        amounts.memory_mb,
        amounts.vcpu_milli,
        amounts.disk_mb,
    )


def measure_lack(request: ClaimRequest, left: Mapping[str, int] | Amounts) -> float:
    """Return the sum of the shares of what is requested that a node does not have left.

    Args:
        left: of each class in parts.
    """
    amounts = request.amounts
    return sum(
        max(0, amounts[name] - left[name]) / amounts[name] for name in PARTS if amounts[name] > 0
    )


def try_grant(
    request: ClaimRequest, shared: SharedNode, policy: AdmissionPolicy
) -> SharedNode | None:
    """Return a node with a request granted, None if the ledger would refuse it there."""
    try:
        return grant_shared(request, shared, policy)[1]
    except NodetrackerError:
        return None


@dataclass(frozen=True, slots=True)
class Room:
    """What is left on a node: of each class in parts, of devices, of huge pages in MiB."""

    left: Mapping[str, int]
    devices: int
    pages_mb: int


def measure_room(shared: SharedNode) -> Room:
    """Return what is left on a node."""
    values = shared.node.values
    pages = measure_huge_pages(values.numa_topology)
    return Room(
        {name: item.own_limit - item.used for name, item in list_capacities(values).items()},
        sum(device.is_available for device in shared.node.devices.values()),
        pages.total_mb - pages.used_mb,
    )


def _is_known(request: ClaimRequest, shared: SharedNode) -> bool:
    """Return whether a node has a guest or claim of a request's workload."""
    uuid = request.workload.uuid
    return uuid in shared.guests or uuid in shared.claims


class Refusals:
    """Nodes that refuse requests of a kind even with nothing else placed there."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, set[int]] = {}

    def grant_alone(
        self, request: ClaimRequest, nodes: Iterable[SharedNode], policy: AdmissionPolicy
    ) -> Iterator[SharedNode]:
        """Yield those of some nodes that the ledger would grant a request on, with it granted."""
        refusing = self._nodes.setdefault(kind_of(request), set())
        for shared in nodes:
            is_known = _is_known(request, shared)
            if shared.node.id in refusing and not is_known:
                continue
            found = try_grant(request, shared, policy)
            if found is not None:
                yield found
            elif not is_known:
                refusing.add(shared.node.id)


class _Fleet:
    """The nodes as they are before anything is placed.

    Attributes:
        known: uuid of a workload of the requests -> ids of the nodes that know it.
    """

    def __init__(
        self,
        nodes: Sequence[SharedNode],
        requests: Iterable[ClaimRequest],
        policy: AdmissionPolicy,
        refusals: Refusals,
    ) -> None:
        self.refusals = refusals
        self.nodes = {shared.node.id: shared for shared in nodes}
        self.rooms = {node_id: measure_room(shared) for node_id, shared in self.nodes.items()}
        self.policy = policy
        self.sums = {
            name: sum(max(0, room.left[name]) for room in self.rooms.values()) for name in PARTS
        }
        self.known: dict[str, set[int]] = {}
        workloads = {request.workload.uuid for request in requests}
        for node_id, shared in self.nodes.items():
            for uuid in (shared.guests.keys() | shared.claims.keys()) & workloads:
                self.known.setdefault(uuid, set()).add(node_id)

    def measure(self, request: ClaimRequest) -> tuple[float, ...]:
        """Return how hard it is to place a request: what it asks of the scarcest first."""
        return (*measure_size(request)[:_RARE], self.shares(request)[0][0])

    def shares(self, request: ClaimRequest) -> list[tuple[float, str]]:
        """Return the share that a request takes of what all nodes have left of each class."""
        amounts = request.amounts
        return sorted(
            ((amounts[name] / max(1, total), name) for name, total in self.sums.items()),
            reverse=True,
        )

    def lacks_sum(self, requests: Iterable[ClaimRequest]) -> bool:
        """Return whether all nodes together have too little left of a class for all requests.

        A request with limits of its own may use more than the nodes' own, and one whose
        workload is known on a node may be charged less there.
        """
        if not all(shared.node.values.tracks_resources for shared in self.nodes.values()):
            return False
        wanted = [
            request.amounts
            for request in requests
            if not request.limits and request.workload.uuid not in self.known
        ]
        return any(
            sum(amounts[name] for amounts in wanted) > total for name, total in self.sums.items()
        )

    def lacks_node(self, request: ClaimRequest) -> bool:
        """Return whether no node accepts a request, even with nothing else placed there."""
        return self.try_alone(request, self.nodes.values()) is None

    def try_alone(self, request: ClaimRequest, nodes: Iterable[SharedNode]) -> SharedNode | None:
        """Return the first of some nodes, as they are here, that accepts a request, with it."""
        return next(self.refusals.grant_alone(request, nodes, self.policy), None)


Order = Callable[["_Attempt", ClaimRequest, list[int]], Iterable[int]]
"""Returns the ids of nodes in the order in which they are asked for a request."""


class _Attempt:
    """One way to place requests one after the other."""

    def __init__(self, fleet: _Fleet, order: Order) -> None:
        self.fleet = fleet
        self.order = order
        self.shared = dict(fleet.nodes)
        self.rooms = dict(fleet.rooms)
        self.granted: dict[int, list[ClaimRequest]] = {node_id: [] for node_id in fleet.nodes}
        self.left: list[ClaimRequest] = []
        self.known = {uuid: set(node_ids) for uuid, node_ids in fleet.known.items()}
        self.refusing: dict[Hashable, set[int]] = {}
        self.tried = 0

    def place_all(self, requests: Iterable[ClaimRequest]) -> None:
        """Place requests in this order, then exchange the places of some for those left."""
        for request in requests:
            if not self.place(request):
                self.left.append(request)
        self.tried = 0
        failed: set[Hashable] = set()
        left, self.left = self.left, []
        for request in left:
            is_hopeless = kind_of(request) in failed or self.fleet.lacks_node(request)
            if not is_hopeless and self.exchange(request):
                failed.clear()
            else:
                failed.add(kind_of(request))
                self.left.append(request)

    def place(self, request: ClaimRequest, without: int | None = None) -> bool:
        """Grant a request on the first node that accepts it; return whether one does."""
        refusing = self.refusing.setdefault(kind_of(request), set())
        known = self.known.get(request.workload.uuid, ())
        open_ = [id_ for id_ in self.shared if id_ not in refusing or id_ in known]
        for node_id in self.order(self, request, open_):
            if node_id == without:
                continue
            shared = None
            if node_id in known or not self._lacks_amounts(request, node_id):
                shared = self._try(request, node_id)
            if shared is not None:
                self._put(node_id, shared, [*self.granted[node_id], request])
                return True
            if node_id not in known:
                refusing.add(node_id)
        return False

    def _try(self, request: ClaimRequest, node_id: int) -> SharedNode | None:
        self.tried += 1
        if not self.granted[node_id]:
            return self.fleet.try_alone(request, [self.shared[node_id]])
        return try_grant(request, self.shared[node_id], self.fleet.policy)

    def exchange(self, request: ClaimRequest) -> bool:
        """Grant a request in the place of another one that fits elsewhere, too."""
        own = kind_of(request)
        for node_id, granted in self.granted.items():
            for kind, other in {kind_of(other): other for other in reversed(granted)}.items():
                if self.tried >= MAX_TRIED:
                    return False
                if kind == own or self._lacks_amounts(request, node_id, other):
                    continue
                rest = [one for one in granted if one is not other]
                shared = self._grant_all(node_id, [*rest, request])
                if shared is None:
                    continue
                before = self.shared[node_id]
                self._put(node_id, shared, [*rest, request])
                if self.place(other, without=node_id):
                    self.refusing.clear()
                    return True
                self._put(node_id, before, granted)
        return False

    def _grant_all(self, node_id: int, requests: Sequence[ClaimRequest]) -> SharedNode | None:
        shared: SharedNode | None = self.fleet.nodes[node_id]
        for request in requests:
            self.tried += 1
            shared = shared and try_grant(request, shared, self.fleet.policy)
        return shared

    def _put(self, node_id: int, shared: SharedNode, granted: list[ClaimRequest]) -> None:
        self.shared[node_id] = shared
        self.granted[node_id] = granted
        self.rooms[node_id] = measure_room(shared)
        for request in granted[-1:]:
            self.known.setdefault(request.workload.uuid, set()).add(node_id)

    def _lacks_amounts(
        self, request: ClaimRequest, node_id: int, other: ClaimRequest | None = None
    ) -> bool:
        """Return whether a node has too little left for a request, in the place of another one."""
        node = self.shared[node_id].node
        if not node.values.tracks_resources:
            return False
        left = self.rooms[node_id].left
        freed = Amounts()
        if other is not None:
            if node_id in self.known.get(request.workload.uuid, ()):
                return False
            freed = other.amounts + Amounts(memory_mb=node.overhead_mb)
        return any(
            request.amounts[name] > max(0, left[name] + freed[name])
            for name in PARTS
            if name not in request.limits
        )

    def list_places(self) -> Iterable[tuple[ClaimRequest, int]]:
        """Yield requests with the ids of their nodes, on each node in the order of their grants."""
        for node_id, granted in self.granted.items():
            for request in granted:
                yield request, node_id


def _as_listed(attempt: _Attempt, request: ClaimRequest, node_ids: list[int]) -> Iterable[int]:
    return node_ids


def _least_left(attempt: _Attempt, request: ClaimRequest, node_ids: list[int]) -> Iterable[int]:
    """Order nodes by what would be left of devices, pages and CPUs for others, the least first."""
    name = attempt.fleet.shares(request)[0][1]
    has_pages = may_use_huge_pages(request.numa)

    def measure(node_id: int) -> tuple[int, ...]:
        room = attempt.rooms[node_id]
        return (
            0 if request.pci_requests else room.devices,
            0 if has_pages else room.pages_mb,
            0 if request.amounts.pcpus else room.left[PCPU],
            room.left[name],
        )

    return sorted(node_ids, key=measure)


def _at_random(seed: int) -> Order:
    source = random.Random(seed)  # noqa: S311

    def order(attempt: _Attempt, request: ClaimRequest, node_ids: list[int]) -> Iterable[int]:
        return source.sample(node_ids, len(node_ids))

    return order
