"""List the providers of many nodes by one request, and find those that somebody changed."""

import threading
import time
from collections.abc import Callable, Sequence

from nodetracker.accounting.placement.placed import PlacedTree, ProviderSummary
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.slots import Slot, Slots

MOST_SINGLE = 8
"""Number of nodes up to which each has a request of its own; a list has a whole cloud's."""

_LIFETIME_SECONDS = 120.0

Trees = dict[str, list[ProviderSummary]]


class Listing:
    """Lists of providers; safe for several threads."""

    def __init__(
        self,
        client: PlacementClient,
        slots: Slots,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._slots = slots
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._trees: Trees = {}
        self._served: set[str] = set()
        self._expires_at = float("-inf")

    def take(self, uuid: str) -> Sequence[ProviderSummary] | None:
        """Return the providers of a node that is to be read, None = list them alone.

        Each list is used once for each node, so that what was created since is read.
        """
        with self._lock:
            is_new = uuid in self._served or self._monotonic() >= self._expires_at
            if is_new:
                if self._slots.count_unread() <= MOST_SINGLE:
                    return None
                self._trees, self._served = self._list_all(), set()
                self._expires_at = self._monotonic() + _LIFETIME_SECONDS
            self._served.add(uuid)
            return self._trees.pop(uuid, [])

    def refresh(self) -> None:
        """Let the nodes whose providers are not as they were left be read again.

        Consumers of others that have nothing on the node's providers are
        forgotten, as nothing shows that they are gone.
        """
        uuids = [slot.record.uuid for slot in self._slots.idle()]
        if len(uuids) > MOST_SINGLE:
            trees = self._list_all()
        else:
            trees = {uuid: self._client.list_providers(tree=uuid) for uuid in uuids}
        known = set(uuids)

        def is_outdated(slot: Slot) -> bool:
            if slot.record.uuid not in known:
                return False
            placed = slot.state.placed
            return placed is None or _has_changed(placed, trees.get(slot.record.uuid, []))

        self._slots.review(is_outdated)

    def _list_all(self) -> Trees:
        """Return uuid of a root -> the providers of its tree."""
        trees: Trees = {}
        summaries = self._client.list_providers()
        for summary in summaries:
            trees.setdefault(summary.root_uuid, []).append(summary)
        return trees


def _has_changed(placed: PlacedTree, summaries: Sequence[ProviderSummary]) -> bool:
    known = {(p.uuid, p.name, p.generation) for p in placed.providers.values()}
    return known != {(s.uuid, s.name, s.generation) for s in summaries} or any(
        placed.providers.keys().isdisjoint(consumer.resources)
        for consumer in placed.consumers.values()
    )
