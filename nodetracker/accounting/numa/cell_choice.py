"""Chooses distinct host cells for guest cells: a matching, in order of preference."""

from collections.abc import Callable, Mapping, Sequence

MAX_VISITED = 50_000
"""Sets of host cells that are looked at before a choice is given up."""


class CellChoice:
    """One search for distinct host cells.

    Whether a guest cell fits a host cell does not depend on where the others
    are, so who goes where is a bipartite matching, found without trying
    permutations. Only `accepts` may refuse a whole choice, and it sees the
    set of host cells alone. So sets are tried in order of preference, and of
    those only the ones that a matching can complete: on 8 host cells at most
    70 whole sets, and none at all when nothing fits.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.
        order: ids of all host cells, the preferred first.
        accepts: says whether a set of host cells, in ascending id, will do.

    Attributes:
        visited: sets of host cells, whole or not, that were looked at.
        has_given_up: `MAX_VISITED` was reached. It takes more than 16 host
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
            host: [guest for guest, hosts in enumerate(candidates) if host in hosts]
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
        hosts_of = {guest: sorted(hosts & chosen) for guest, hosts in enumerate(self._candidates)}
        guest_of: dict[int, int] = {}
        for guest in hosts_of:
            _match(guest, hosts_of, guest_of, set())
        return tuple(sorted(guest_of, key=lambda host: guest_of[host]))

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
        """Tell whether `chosen` and some host cells from `start` on are just enough for all.

        A matched host cell stays so when others are matched after it: once
        all of `chosen` are, the rest is only counted.
        """
        host_of: dict[int, int] = {}
        if not all(_match(host, self._guests_of, host_of, set()) for host in chosen):
            return False
        for host in self._order[start:]:
            if len(host_of) == len(self._candidates):
                break
            _match(host, self._guests_of, host_of, set())
        return len(host_of) == len(self._candidates)


def find_crowd(
    candidates: Sequence[frozenset[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return guest cells that together fit fewer host cells than they are.

    Args:
        candidates: for each guest cell the ids of the host cells it fits.

    Returns:
        (their indices, ids of all host cells that any of them fits), or None
        when there are distinct host cells for all.

    >>> find_crowd([frozenset({0, 1}), frozenset({1}), frozenset({1})])
    ((1, 2), (1,))
    """
    hosts_of = {guest: sorted(hosts) for guest, hosts in enumerate(candidates)}
    guest_of: dict[int, int] = {}
    for guest in hosts_of:
        asked: set[int] = set()
        if not _match(guest, hosts_of, guest_of, asked):
            crowd = {guest} | {guest_of[host] for host in asked}
            return tuple(sorted(crowd)), tuple(sorted(asked))
    return None


def _match(
    left: int, rights_of: Mapping[int, Sequence[int]], left_of: dict[int, int], asked: set[int]
) -> bool:
    """Match one more on the left by an augmenting path; who is matched stays so.

    Args:
        rights_of: left -> those on the right that fit it.
        left_of: the matching so far, right -> left; it grows by one.
        asked: those on the right that were already asked to move.
    """
    for right in rights_of[left]:
        if right not in left_of:
            left_of[right] = left
            return True
    for right in rights_of[left]:
        if right not in asked:
            asked.add(right)
            if _match(left_of[right], rights_of, left_of, asked):
                left_of[right] = left
                return True
    return False
