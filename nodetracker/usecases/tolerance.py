"""Find out which losses of hosts the fleet survives."""

import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.departures import Departure, Remaining, list_departures
from nodetracker.accounting.ledger.exclusions import evaluate_miss
from nodetracker.accounting.ledger.packing import Packing, Refusals, kind_of, pack
from nodetracker.accounting.ledger.tolerance import (
    Review,
    choose_nodes,
    describe_place,
    find_nearest,
    keep_places,
    list_gained,
    list_worst_pairs,
    may_take_any,
    review,
    sum_amounts,
)
from nodetracker.accounting.ledger.transaction import SharedNode, share_node
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.node import NodeRecord
from nodetracker.model.text import natural_key
from nodetracker.model.tolerance import (
    HostTolerance,
    LossPlan,
    LostGuest,
    NodeRoom,
    Verdict,
)
from nodetracker.ports import AdmissionPolicy, ToleranceStore
from nodetracker.usecases.plans import NEAREST, in_parts, policy_for
from nodetracker.views.claims import explain_reasons
from nodetracker.views.tolerance import describe_lost


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What has to leave a host, or two, that are lost."""

    hosts: tuple[str, ...]
    own: tuple[NodeRoom, ...]
    departures: tuple[Departure, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    requests: tuple[ClaimRequest, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", tuple(item.request for item in self.departures))


def refresh_tolerances(store: ToleranceStore, policy: AdmissionPolicy, interval: int) -> None:
    """Store answers for all hosts that are up; those that hold are not found again.

    Args:
        interval: seconds until this is done again; 0 = never, so that none are kept.
    """
    stored = {item.host: item for item in store.list_tolerances(with_plans=True)}
    if not interval:
        store.save_tolerances((), stored, 0)
        return
    check = ToleranceCheck(store, policy)
    found = list(check.check(stored))
    store.save_tolerances(found, stored.keys() - set(check.hosts), 2 * interval)


class ToleranceCheck:
    """Answers for each host that is up; reads the fleet's rooms once, and nodes as it needs them.

    Hosts that are down already count as lost, and so do those of a disabled service or in
    maintenance as places for guests.
    """

    def __init__(self, store: ToleranceStore, policy: AdmissionPolicy) -> None:
        self._store = store
        self._policy = policy
        rooms = store.list_rooms(policy.service_down_time)
        self._rooms = {room.id: room for room in rooms}
        self._open = [room for room in rooms if room.accepts]
        self._own: dict[str, list[NodeRoom]] = {}
        for room in rooms:
            if room.is_up:
                self._own.setdefault(room.host, []).append(room)
        self._nodes: dict[int, SharedNode] = {}
        self._refusals = Refusals()
        self._nearest: dict[Hashable, list[NodeRoom]] = {}

    @property
    def hosts(self) -> list[str]:
        """Those that are up and have nodes."""
        return list(self._own)

    def check(self, stored: Mapping[str, HostTolerance] | None = None) -> Iterator[HostTolerance]:
        """Yield the answers for hosts whose stored ones do not hold, or have a plan that changed.

        Args:
            stored: with their plans, by host.
        """
        stored = stored or {}
        before = {room.id: room for item in stored.values() if item.plan for room in item.plan.own}
        gained = list_gained(before, self._rooms)
        todo = {
            host: found
            for host, own in self._own.items()
            if (found := review(stored.get(host), own, self._rooms, gained)) is not Review.KEEP
        }
        for hosts in in_parts(todo):
            leaving = self._load_leaving(hosts)
            kept = [stored[host] for host in hosts if todo[host] is Review.CHECK]
            self._load(place.id for item in kept if item.plan for place in item.plan.places)
            chosen = {host: self._choose(leaving[host]) for host in hosts}
            self._load(
                room.id
                for host, rooms in chosen.items()
                if todo[host] is Review.RENEW
                for room in rooms
            )
            for host in hosts:
                item = leaving[host]
                answer = None
                if todo[host] is Review.CHECK:
                    answer = self._keep(stored[host], item)
                yield answer or self._find(item, chosen[host])

    def check_trait(self, trait: str) -> Iterator[HostTolerance]:
        """Yield the answers for hosts with a trait and those of their guests that require it."""
        for hosts in in_parts(self._own):
            for item in self._load_leaving(hosts, trait).values():
                if item.own:
                    yield self._find(item, self._choose(item))

    def check_pairs(self) -> Iterator[HostTolerance]:
        """Yield the answers for the pairs of hosts that are worst by what their guests ask for."""
        leaving: dict[str, _Leaving] = {}
        for hosts in in_parts(self._own):
            leaving |= self._load_leaving(hosts)
        needs = {host: sum_amounts(item.requests) for host, item in leaving.items()}
        for pair in list_worst_pairs(needs, self._rooms.values()):
            first, second = sorted(pair, key=natural_key)
            one, other = leaving[first], leaving[second]
            both = _Leaving(
                (first, second),
                one.own + other.own,
                one.departures + other.departures,
                one.remaining + other.remaining,
            )
            yield self._find(both, self._choose(both))

    def _load_leaving(self, hosts: Sequence[str], trait: str | None = None) -> dict[str, _Leaving]:
        """Return what leaves hosts, by a fixed number of statements."""
        records: dict[str, list[NodeRecord]] = {host: [] for host in hosts}
        for record in self._store.load_hosts(hosts):
            if trait is None or trait in record.values.traits:
                records[record.host].append(record)
        claims = [uuid for found in records.values() for node in found for uuid in node.claims]
        asked = self._store.find_requirements(claims)
        leaving: dict[str, _Leaving] = {}
        for host, found in records.items():
            items = [item for record in found for item in list_departures(record, asked, True)]
            leaving[host] = _Leaving(
                (host,),
                tuple(room for room in self._own[host] if trait is None or found),
                tuple(
                    item
                    for item in items
                    if isinstance(item, Departure)
                    and (trait is None or trait in item.request.required_traits)
                ),
                tuple(item for item in items if isinstance(item, Remaining) and item.needs_place),
            )
        return leaving

    def _choose(self, leaving: _Leaving) -> list[NodeRoom]:
        start = zlib.crc32(leaving.hosts[0].encode())
        return list(choose_nodes(leaving.requests, self._list_open(leaving), start))

    def _list_open(self, leaving: _Leaving) -> list[NodeRoom]:
        return [room for room in self._open if room.host not in leaving.hosts]

    def _load(self, node_ids: Iterable[int]) -> None:
        """Read nodes that were not read yet; all answers share them."""
        new = {node_id for node_id in node_ids if node_id not in self._nodes}
        for node in self._store.load_ledger_nodes(new):
            self._nodes[node.id] = share_node(node)

    def _keep(self, stored: HostTolerance, leaving: _Leaving) -> HostTolerance | None:
        """Return an answer with its plan as it holds now, None if it does not."""
        assert stored.plan is not None
        if leaving.remaining:
            return None
        places = keep_places(
            stored.plan.places,
            {item.request.workload.uuid: item.request for item in leaving.departures},
            self._nodes,
            self._rooms,
            policy_for(self._policy, leaving.departures),
        )
        if places is None:
            return None
        return replace(stored, plan=LossPlan(leaving.own, places))

    def _find(self, leaving: _Leaving, chosen: Sequence[NodeRoom]) -> HostTolerance:
        """Return an answer with a new plan; all nodes are tried if the chosen ones are too few."""
        packing = self._pack(leaving, chosen)
        if packing.left:
            able = self._list_able(leaving, packing.left)
            wider = {room.id: room for room in (*chosen, *able)}
            if len(wider) > len(chosen):
                packing = self._pack(leaving, wider.values())
        lost = [*self._explain(leaving, packing)]
        lost += [_describe_unknown(item) for item in leaving.remaining]
        verdict = Verdict.SURVIVED
        if lost:
            is_known = any(guest.is_known for guest in lost)
            verdict = Verdict.NOT_SURVIVED if is_known else Verdict.UNKNOWN
        guests: dict[int, list[str]] = {}
        for request, node_id in packing.places:
            guests.setdefault(node_id, []).append(request.workload.uuid)
        places = tuple(describe_place(self._rooms[id_], found) for id_, found in guests.items())
        plan = LossPlan(leaving.own, places, tuple(lost))
        return HostTolerance(" and ".join(leaving.hosts), verdict, describe_lost(lost), plan)

    def _list_able(self, leaving: _Leaving, requests: Iterable[ClaimRequest]) -> list[NodeRoom]:
        """Return the nodes that would grant one of some requests with nothing else placed there."""
        kinds = list({kind_of(request): request for request in requests}.values())
        able = [room for room in self._list_open(leaving) if may_take_any(room, kinds)]
        self._load(room.id for room in able)
        nodes = [self._nodes[room.id] for room in able if room.id in self._nodes]
        policy = policy_for(self._policy, leaving.departures)
        accepting = {
            shared.node.id
            for request in kinds
            for shared in self._refusals.grant_alone(request, nodes, policy)
        }
        return [room for room in able if room.id in accepting]

    def _pack(self, leaving: _Leaving, rooms: Iterable[NodeRoom]) -> Packing:
        ids = [room.id for room in rooms]
        self._load(ids)
        nodes = [self._nodes[node_id] for node_id in ids if node_id in self._nodes]
        policy = policy_for(self._policy, leaving.departures)
        assumed = {item.request.uuid for item in leaving.departures if item.is_derived}
        return pack(leaving.requests, nodes, policy, assumed, refusals=self._refusals)

    def _explain(self, leaving: _Leaving, packing: Packing) -> Iterator[LostGuest]:
        """Yield the guests without a place, with the reason of the nearest node for each kind."""
        reasons: dict[object, str] = {}
        for request in packing.left:
            kind = kind_of(request)
            if kind not in reasons:
                reasons[kind] = self._find_reason(leaving, request, packing)
            workload, numa = request.workload, request.numa
            yield LostGuest(
                workload.uuid,
                workload.name,
                request.amounts.memory_mb,
                0 if numa is None else len(numa.cells),
                reasons[kind],
            )

    def _list_nearest(self, leaving: _Leaving, request: ClaimRequest) -> list[int]:
        """Return the nodes that lack the least; all hosts share those of a kind of request."""
        kind = kind_of(request)
        if kind not in self._nearest:
            own = max(map(len, self._own.values())) * len(leaving.hosts)
            self._nearest[kind] = find_nearest(request, self._open, NEAREST + own)
        near = (room.id for room in self._nearest[kind] if room.host not in leaving.hosts)
        return list(islice(near, NEAREST))

    def _find_reason(self, leaving: _Leaving, request: ClaimRequest, packing: Packing) -> str:
        near = self._list_nearest(leaving, request)
        self._load(near)
        policy = policy_for(self._policy, leaving.departures)
        misses = [
            evaluate_miss(node.node.host, node.node.nodename, admission)
            for node_id in near
            if (node := packing.nodes.get(node_id, self._nodes.get(node_id))) is not None
            for admission in [evaluate_claim(request, node.see(request.workload.uuid), policy)]
        ]
        found = min(filter(None, misses), key=lambda miss: miss.rank, default=None)
        if found is None:
            return "no node was found for it beside the others"
        texts = "; ".join(each["text"] for each in explain_reasons(found))
        return f"no node was found for it; the nearest is {found.nodename} of {found.host}: {texts}"


def _describe_unknown(item: Remaining) -> LostGuest:
    workload = item.workload
    return LostGuest(workload.uuid, workload.name, 0, 0, item.reason, is_known=False)
