"""Choose distinct host cells for guest cells in order of preference."""

from collections.abc import Callable, Sequence

from nodetracker.accounting.matching import KuhnMatching

MAX_VISITED = 50_000
"""Number of sets of host cells after which a search ends without a result."""


class CellChoice:
    """One search for distinct host cells.

    Whether a guest cell fits a host cell does not depend on the other guest
    cells, so their placement is a bipartite matching, found without trying
    permutations. Only `accepts` may refuse a complete choice, and it depends
    only on the set of host cells. So sets are tried in order of preference,
    and only those that a matching can complete: on 8 host cells at most 70
    complete sets, and none when nothing fits.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.
        order: ids of all host cells, the preferred first.
        accepts: returns whether a set of host cells, in ascending id, is acceptable.

    Attributes:
        visited: number of sets of host cells, complete or not, that were tried.
        has_given_up: `MAX_VISITED` was reached. This takes more than 16 host
            cells and an `accepts` that refuses thousands of sets.
    """

    def __init__(
        self,
        candidates: Sequence[frozenset[int]],
        order: Sequence[int],
        accepts: Callable[[tuple[int, ...]], bool],
    ) -> None:
        self._candidates = candidates
        self._order = tuple(order)
        self._accepts = accepts
        self._guests_of = {
            host: [[guest for guest, hosts in enumerate(candidates) if host in hosts]]
            for host in order
        }
        self.visited = 0
        self.has_given_up = False

    def find(self) -> tuple[int, ...] | None:
        """Return the host cell of each guest cell, or None."""
        if not self._can_complete((), 0):
            return None
        chosen = self._find_set((), 0)
        if chosen is None:
            return None
        matching = KuhnMatching(
            {guest: [sorted(hosts & chosen)] for guest, hosts in enumerate(self._candidates)}
        )
        for guest in range(len(self._candidates)):
            matching.add(guest)
        return tuple(sorted(matching.left_of, key=lambda host: matching.left_of[host]))

    def _find_set(self, chosen: tuple[int, ...], start: int) -> frozenset[int] | None:
        lacking = len(self._candidates) - len(chosen)
        if lacking == 0:
            return frozenset(chosen) if self._accepts(tuple(sorted(chosen))) else None
        for position in range(start, len(self._order) - lacking + 1):
            if self.visited >= MAX_VISITED:
                self.has_given_up = True
                return None
            self.visited += 1
            longer = (*chosen, self._order[position])
            if self._can_complete(longer, position + 1):
                found = self._find_set(longer, position + 1)
                if found is not None:
                    return found
        return None

    def _can_complete(self, chosen: tuple[int, ...], start: int) -> bool:
        """Return whether `chosen` can be completed with host cells from `start` on.

        A matched host cell remains matched when others are added, so once all
        of `chosen` are matched, the others are only counted.
        """
        matching = KuhnMatching(self._guests_of)
        if not all(matching.add(host) for host in chosen):
            return False
        for host in self._order[start:]:
            if len(matching.left_of) == len(self._candidates):
                break
            matching.add(host)
        return len(matching.left_of) == len(self._candidates)


def find_shortage(
    candidates: Sequence[frozenset[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return a group of guest cells that fit fewer host cells than they need.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.

    Returns:
        (their indices, ids of all host cells that any of them fits), or None
        when all can have distinct host cells.

    >>> find_shortage([frozenset({0, 1}), frozenset({1}), frozenset({1})])
    ((1, 2), (1,))
    """
    matching = KuhnMatching({guest: [sorted(hosts)] for guest, hosts in enumerate(candidates)})
    for guest in range(len(candidates)):
        if not matching.add(guest):
            guests = tuple(sorted(matching.visited))
            return guests, tuple(sorted(frozenset().union(*(candidates[one] for one in guests))))
    return None
