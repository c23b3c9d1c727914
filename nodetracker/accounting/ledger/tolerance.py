"""Decide which stored answers about losses of hosts still hold, and which nodes may take guests.

A plan that was found holds as long as its guests are the same and each destination would grant
them still; "no" holds until any node has more room.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import nlargest, nsmallest
from itertools import combinations

from nodetracker.accounting.ledger.packing import kind_of, measure_lack, try_grant
from nodetracker.accounting.ledger.transaction import SharedNode
from nodetracker.model.amounts import PARTS, Amounts
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.model.tolerance import (
    HostTolerance,
    NodeGuests,
    NodeRoom,
    Rooms,
    Verdict,
)

MAX_PAIRS = 1000
"""Pairs of hosts of which it is computed whether the fleet survives the loss of both."""

_PAIRED_HOSTS = 150

_SPARE = 1.5
"""How many times the guests nodes could take that are read first; cells and devices need more."""

_LEAST_NODES = 4


class Review(Enum):
    """What is to be done with a stored answer."""

    KEEP = "keep"
    CHECK = "check"
    RENEW = "renew"


def review(
    stored: HostTolerance | None,
    own: Sequence[NodeRoom],
    rooms: Rooms,
    gained: Collection[str],
) -> Review:
    """Return whether a stored answer holds, may hold, or is to be found again.

    Args:
        own: the host's nodes as they are now.
        rooms: all nodes as they are now.
        gained: hosts with a node that has more room than when the answers were found.
    """
    if stored is None or stored.plan is None:
        return Review.RENEW
    plan = stored.plan
    is_same = _list_versions(plan.own) == _list_versions(own)
    if stored.verdict is not Verdict.SURVIVED:
        has_chance = any(host != stored.host for host in gained)
        return Review.KEEP if is_same and not has_chance else Review.RENEW
    if is_same and all(_is_unchanged(place, rooms) for place in plan.places):
        return Review.KEEP
    return Review.CHECK if all(_accepts(place, rooms) for place in plan.places) else Review.RENEW


def _list_versions(rooms: Iterable[NodeRoom]) -> set[tuple[int, int]]:
    return {(room.id, room.generation) for room in rooms}


def _is_unchanged(place: NodeGuests, rooms: Rooms) -> bool:
    room = rooms.get(place.id)
    return room is not None and room.accepts and room.generation == place.generation


def _accepts(place: NodeGuests, rooms: Rooms) -> bool:
    room = rooms.get(place.id)
    return room is not None and room.accepts


def list_gained(before: Rooms, rooms: Rooms) -> set[str]:
    """Return the hosts with a node that may have more room, or accepts claims by now.

    Args:
        before: all nodes as they were when the stored answers were found.
    """
    return {room.host for room in rooms.values() if _has_gained(before.get(room.id), room)}


def _has_gained(before: NodeRoom | None, now: NodeRoom) -> bool:
    """Return whether a node may have more room; one write that took some gave none."""
    if not now.accepts:
        return False
    if before is None or not before.accepts:
        return True
    if before.generation == now.generation:
        return False
    more = [now.left[name] - before.left[name] for name in PARTS]
    has_only_lost = now.generation == before.generation + 1 and max(more) <= 0 and min(more) < 0
    return not (has_only_lost and now.is_bounded)


def keep_places(
    places: Sequence[NodeGuests],
    requests: Mapping[str, ClaimRequest],
    nodes: Mapping[int, SharedNode],
    rooms: Rooms,
    policy: AdmissionPolicy,
) -> tuple[NodeGuests, ...] | None:
    """Return the places of guests as they hold now, None if they do not.

    Args:
        requests: uuid of a guest -> what it requires; of all guests of the host.
        nodes: by id; those of the places, as far as they exist.
    """
    planned = [uuid for place in places for uuid in place.guests]
    if Counter(planned) != Counter(requests):
        return None
    for place in places:
        shared = nodes.get(place.id)
        for uuid in place.guests:
            shared = shared and try_grant(requests[uuid], shared, policy)
        if shared is None:
            return None
    return tuple(describe_place(rooms[place.id], place.guests) for place in places)


def describe_place(room: NodeRoom, guests: Iterable[str]) -> NodeGuests:
    """Return a node of a plan with its guests, as it is now."""
    return NodeGuests(room.id, room.generation, room.host, room.nodename, tuple(guests))


def choose_nodes(
    requests: Sequence[ClaimRequest], rooms: Sequence[NodeRoom], start: int
) -> Iterator[NodeRoom]:
    """Yield nodes that could take all requests by their amounts, and few more.

    They are others for each start, so that few plans depend on one node.

    Args:
        rooms: that accept claims.
    """
    kinds = _count_kinds(requests)
    total = sum_amounts(requests)
    share, number = 0.0, 0
    first = start % max(1, len(rooms))
    for room in (*rooms[first:], *rooms[:first]):
        if share >= _SPARE and number >= _LEAST_NODES:
            return
        if may_take_any(room, kinds):
            yield room
            number += 1
            share += _share_of(room, total)


def _share_of(room: NodeRoom, total: Amounts) -> float:
    if not room.is_bounded:
        return 1.0
    return min((room.left[name] / total[name] for name in PARTS if total[name] > 0), default=1.0)


def may_take_any(room: NodeRoom, requests: Iterable[ClaimRequest]) -> bool:
    """Return whether a node may take at least one of some requests by its row."""
    return any(request.limits or room.count(request.amounts) != 0 for request in requests)


def sum_amounts(requests: Iterable[ClaimRequest]) -> Amounts:
    """Return what requests ask for together."""
    return sum((request.amounts for request in requests), Amounts())


def _count_kinds(requests: Sequence[ClaimRequest]) -> list[ClaimRequest]:
    """Return one request of each kind."""
    return list({kind_of(request): request for request in requests}.values())


def find_nearest(request: ClaimRequest, rooms: Iterable[NodeRoom], number: int) -> list[NodeRoom]:
    """Return the nodes that lack the least for a request by their rows."""

    def lack(room: NodeRoom) -> tuple[float, str, str]:
        lacks = measure_lack(request, room.left) if room.is_bounded else 0.0
        return lacks, room.host, room.nodename

    return nsmallest(number, rooms, key=lack)


def list_worst_pairs(
    needs: Mapping[str, Amounts], rooms: Iterable[NodeRoom]
) -> list[tuple[str, str]]:
    """Return the pairs of hosts whose guests would take most of what all others have left.

    Args:
        needs: host -> what its guests ask for together.
    """
    own: dict[str, Amounts] = dict.fromkeys(needs, Amounts())
    total = Amounts()
    for room in rooms:
        if room.accepts:
            total += room.left
            if room.host in own:
                own[room.host] += room.left

    def share(*hosts: str) -> float:
        need = sum((needs[host] for host in hosts), Amounts())
        left = total - sum((own[host] for host in hosts), Amounts())
        return max(need[name] / max(1, left[name]) for name in PARTS)

    worst = nlargest(_PAIRED_HOSTS, sorted(needs), key=share)
    return nlargest(MAX_PAIRS, combinations(worst, 2), key=lambda pair: share(*pair))
