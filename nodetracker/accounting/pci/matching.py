"""Match PCI devices with requests, so that requests that can be met together always are.

Taking the first device that fits is not sufficient for two reasons: requests
compete for the same devices, and a PF and its VFs exclude each other. The first
is a bipartite matching. For the second, each card of which both the PF and VFs
are requested is used either as a PF or for its VFs, and these ways are tried.
They are few, as only the number of equal cards matters.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodetracker.accounting.matching import KuhnMatching


@dataclass(frozen=True, slots=True)
class Demand:
    """The need of one request and the devices that satisfy it.

    Attributes:
        count: number of devices needed.
        ranks: address -> rank of preference, 0 is best; within a rank, the
            first address is preferred.
    """

    count: int
    ranks: Mapping[str, int]


def match_devices(
    demands: Sequence[Demand], parents: Mapping[str, str | None]
) -> tuple[tuple[str, ...], ...]:
    """Choose devices for all demands together.

    Better ranks and earlier addresses are preferred, as far as all demands can
    be met. The result is deterministic.

    Args:
        parents: address -> address of its PF, of every address in the demands.

    Returns:
        Addresses for each demand, without duplicates and without a VF together
        with its PF. If not all demands can be met together, as many addresses
        as possible.
    """
    best: tuple[tuple[str, ...], ...] = ((),) * len(demands)
    needed = sum(demand.count for demand in demands)
    for excluded in _list_uses(demands, parents):
        found = _match(
            [
                Demand(
                    demand.count,
                    {name: rank for name, rank in demand.ranks.items() if name not in excluded},
                )
                for demand in demands
            ]
        )
        if _size(found) > _size(best):
            best = found
        if _size(best) == needed:
            break
    return best


def is_met(demands: Sequence[Demand], chosen: Sequence[Sequence[str]]) -> bool:
    """Return whether every demand got all the devices it needs."""
    return all(
        len(addresses) == demand.count for demand, addresses in zip(demands, chosen, strict=True)
    )


def _size(chosen: Sequence[Sequence[str]]) -> int:
    return sum(map(len, chosen))


def _match(demands: Sequence[Demand]) -> tuple[tuple[str, ...], ...]:
    """Match as many as possible; an address belongs to at most one demand."""
    matching = KuhnMatching(dict(enumerate(map(_list_tiers, demands))))
    for index, demand in enumerate(demands):
        for _ in range(demand.count):
            if not matching.add(index):
                break
    chosen: list[list[str]] = [[] for _ in demands]
    for address, index in matching.left_of.items():
        chosen[index].append(address)
    return tuple(tuple(sorted(addresses)) for addresses in chosen)


def _list_tiers(demand: Demand) -> list[list[str]]:
    """Return the addresses of each rank together, the best rank first."""
    tiers: dict[int, list[str]] = {}
    for address, rank in demand.ranks.items():
        tiers.setdefault(rank, []).append(address)
    return [tiers[rank] for rank in sorted(tiers)]


def _list_uses(
    demands: Sequence[Demand], parents: Mapping[str, str | None]
) -> Iterator[frozenset[str]]:
    """Yield the addresses to exclude, one set for each way to use the contested cards."""
    children: dict[str, list[str]] = {}
    for address in dict.fromkeys(name for demand in demands for name in demand.ranks):
        parent = parents[address]
        if parent is not None:
            children.setdefault(parent, []).append(address)
    contested = [name for demand in demands for name in demand.ranks if name in children]
    groups: dict[Hashable, list[str]] = {}
    for card in dict.fromkeys(contested):
        groups.setdefault(_describe_card(card, children[card], demands), []).append(card)
    for group in groups.values():
        group.sort(key=lambda card: len(children[card]))  # fewest VFs: used as PFs first
    whole_cards = sum(
        demand.count for demand in demands if any(name in children for name in demand.ranks)
    )
    for counts in _split(whole_cards, [len(group) for group in groups.values()]):
        excluded: set[str] = set()
        for group, count in zip(groups.values(), counts, strict=True):
            for card in group[:count]:
                excluded.update(children[card])
            excluded.update(group[count:])
        yield frozenset(excluded)


def _describe_card(card: str, vfs: Sequence[str], demands: Sequence[Demand]) -> Hashable:
    """Return what distinguishes a card for the demands; equal ones are interchangeable.

    When all VFs of a card are of the same use, cards that differ only in the
    number of VFs count as equal: assigning the smaller one is never worse.
    """

    def use_of(address: str) -> tuple[int | None, ...]:
        return tuple(demand.ranks.get(address) for demand in demands)

    uses = Counter(map(use_of, vfs))
    return use_of(card), frozenset(uses if len(uses) == 1 else uses.items())


def _split(total: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to take at most `total` items, and at most so many of each size.

    >>> list(_split(1, [2, 1]))
    [(1, 0), (0, 1), (0, 0)]
    """
    if not sizes:
        yield ()
        return
    for count in range(min(total, sizes[0]), -1, -1):
        for rest in _split(total - count, sizes[1:]):
            yield count, *rest
