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
from nodetracker.model.amounts import PARTS, PCPU
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.numa import may_use_huge_pages
from nodetracker.model.settings import AdmissionPolicy

SEEDS = (1, 2)
"""Of the orders at random."""

MAX_TRIED = 1000
"""Grants that are tried to exchange the places of claims, in each order."""


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


def pack(
    requests: Sequence[ClaimRequest],
    nodes: Sequence[SharedNode],
    policy: AdmissionPolicy,
    assumed: Collection[str] = (),
) -> Packing:
    """Return a node for each request, or for as many as are found.

    Args:
        nodes: those that are preferred first.
        assumed: uuids of requests of which it is not known that they ask for no more than
            necessary; they make no answer certain.
    """
    fleet = _Fleet(nodes, policy)
    ordered = sorted(requests, key=fleet.measure, reverse=True)
    best: _Attempt | None = None
    for order in (_as_listed, _least_left, *map(_at_random, SEEDS)):
        attempt = _Attempt(fleet, order)
        attempt.place_all(ordered)
        if best is None or len(attempt.left) < len(best.left):
            best = attempt
        if not best.left:
            break
    assert best is not None
    known = [request for request in requests if request.uuid not in assumed]
    left = [request for request in best.left if request.uuid not in assumed]
    is_certain = bool(left) and (fleet.lacks_sum(known) or any(map(fleet.lacks_node, left)))
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


def try_grant(
    request: ClaimRequest, shared: SharedNode, policy: AdmissionPolicy
) -> SharedNode | None:
    """Return a node with a request granted, None if the ledger would refuse it there."""
    try:
        return grant_shared(request, shared, policy)[1]
    except NodetrackerError:
        return None


@dataclass(frozen=True, slots=True)
class _Room:
    """What is left on a node: of each class in parts, of devices, of huge pages in MiB."""

    left: Mapping[str, int]
    devices: int
    pages_mb: int


def _measure_room(shared: SharedNode) -> _Room:
    values = shared.node.values
    pages = measure_huge_pages(values.numa_topology)
    return _Room(
        {name: item.own_limit - item.used for name, item in list_capacities(values).items()},
        sum(device.is_available for device in shared.node.devices.values()),
        pages.total_mb - pages.used_mb,
    )


def _is_known(request: ClaimRequest, shared: SharedNode) -> bool:
    """Return whether a node has a guest or claim of a request's workload."""
    uuid = request.workload.uuid
    return uuid in shared.guests or uuid in shared.claims


class _Fleet:
    """The nodes as they are before anything is placed."""

    def __init__(self, nodes: Sequence[SharedNode], policy: AdmissionPolicy) -> None:
        self.nodes = {shared.node.id: shared for shared in nodes}
        self.rooms = {node_id: _measure_room(shared) for node_id, shared in self.nodes.items()}
        self.policy = policy
        self.sums = {
            name: sum(max(0, room.left[name]) for room in self.rooms.values()) for name in PARTS
        }

    def measure(self, request: ClaimRequest) -> tuple[float, ...]:
        """Return how hard it is to place a request: what it asks of the scarcest first."""
        numa = request.numa
        return (
            sum(wanted.count for wanted in request.pci_requests),
            sum(request.amounts.resources.values()),
            request.amounts.memory_mb if may_use_huge_pages(numa) else 0,
            request.amounts.pcpus,
            0 if numa is None else len(numa.cells),
            self.shares(request)[0][0],
        )

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
            if not request.limits
            and not any(_is_known(request, shared) for shared in self.nodes.values())
        ]
        return any(
            sum(amounts[name] for amounts in wanted) > total for name, total in self.sums.items()
        )

    def lacks_node(self, request: ClaimRequest) -> bool:
        """Return whether no node accepts a request, even with nothing else placed there."""
        return not any(try_grant(request, shared, self.policy) for shared in self.nodes.values())


Order = Callable[["_Attempt", ClaimRequest], Iterable[int]]
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
        self.refusing: dict[Hashable, set[int]] = {}
        self.tried = 0

    def place_all(self, requests: Iterable[ClaimRequest]) -> None:
        """Place requests in this order, then exchange the places of some for those left."""
        for request in requests:
            if not self.place(request):
                self.left.append(request)
        self.left = [request for request in self.left if not self.exchange(request)]

    def place(self, request: ClaimRequest, without: int | None = None) -> bool:
        """Grant a request on the first node that accepts it; return whether one does."""
        refusing = self.refusing.setdefault(kind_of(request), set())
        for node_id in self.order(self, request):
            if node_id == without or self._is_hopeless(request, node_id, refusing):
                continue
            self.tried += 1
            shared = try_grant(request, self.shared[node_id], self.fleet.policy)
            if shared is not None:
                self._put(node_id, shared, [*self.granted[node_id], request])
                return True
            refusing.add(node_id)
        return False

    def exchange(self, request: ClaimRequest) -> bool:
        """Grant a request in the place of another one that fits elsewhere, too."""
        self.tried = 0
        for node_id, granted in self.granted.items():
            for other in reversed(granted):
                if self.tried >= MAX_TRIED:
                    return False
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
        self.rooms[node_id] = _measure_room(shared)

    def _is_hopeless(self, request: ClaimRequest, node_id: int, refusing: set[int]) -> bool:
        """Return whether a node is known to refuse a request."""
        shared = self.shared[node_id]
        if _is_known(request, shared) or not shared.node.values.tracks_resources:
            return False
        left = self.rooms[node_id].left
        return node_id in refusing or any(
            request.amounts[name] > max(0, left[name])
            for name in PARTS
            if name not in request.limits
        )

    def list_places(self) -> Iterable[tuple[ClaimRequest, int]]:
        """Yield requests with the ids of their nodes, on each node in the order of their grants."""
        for node_id, granted in self.granted.items():
            for request in granted:
                yield request, node_id


def _as_listed(attempt: _Attempt, request: ClaimRequest) -> Iterable[int]:
    return list(attempt.shared)


def _least_left(attempt: _Attempt, request: ClaimRequest) -> Iterable[int]:
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

    return sorted(attempt.shared, key=measure)


def _at_random(seed: int) -> Order:
    source = random.Random(seed)  # noqa: S311

    def order(attempt: _Attempt, request: ClaimRequest) -> Iterable[int]:
        return source.sample(list(attempt.shared), len(attempt.shared))

    return order
