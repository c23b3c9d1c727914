"""Match the two sides of a bipartite graph by Kuhn's algorithm of augmenting paths."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)
R = TypeVar("R", bound=Hashable)


class KuhnMatching(Generic[L, R]):
    """A matching that grows by one edge at a time and never loses a matched vertex.

    As a path that frees one vertex is found whenever one exists, a left vertex
    that cannot be added cannot be matched together with those added before.

    Args:
        tiers_of: the right vertices that each left vertex may have, in groups,
            the preferred group first. Within a group a free vertex is taken before one
            that has to be freed by moving its left vertex on.

    Attributes:
        left_of: the matching, right vertex -> left vertex.
        visited: the left vertices of the last search. After a search that found
            no path they need more right vertices than they have together
            (a violation of Hall's condition).

    >>> matching = KuhnMatching({"a": [[0, 1]], "b": [[0]], "c": [[0, 1]]})
    >>> [matching.add(left) for left in "abc"], matching.left_of
    ([True, True, False], {0: 'b', 1: 'a'})
    >>> sorted(matching.visited)
    ['a', 'b', 'c']
    """

    def __init__(self, tiers_of: Mapping[L, Sequence[Sequence[R]]]) -> None:
        self._tiers_of = tiers_of
        self.left_of: dict[R, L] = {}
        self.visited: set[L] = set()

    def add(self, left: L) -> bool:
        """Match a left vertex with one more right vertex; return whether that is possible."""
        self.visited = set()
        return self._augment(left)

    def _augment(self, left: L) -> bool:
        self.visited.add(left)
        for rights in self._tiers_of[left]:
            for right in rights:
                if right not in self.left_of:
                    self.left_of[right] = left
                    return True
            for right in rights:
                owner = self.left_of[right]
                if owner not in self.visited and self._augment(owner):
                    self.left_of[right] = left
                    return True
        return False
