"""Read nodes for schedulers; nothing is kept between requests."""

from collections.abc import Iterator, Sequence

from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import SchedulerStore
from nodetracker.scheduler.host_state import HostState

PAGE_SIZE = 200
"""Nodes of the fleet in memory at a time; over a conductor, a page is one message."""


class HostManager:
    """Reads nodes with what admission needs of them, at most four statements for any number."""

    def __init__(self, store: SchedulerStore) -> None:
        self._store = store

    def get_host_states(
        self, node_ids: Sequence[int], request: ClaimRequest | None = None
    ) -> list[HostState]:
        """Return these nodes in this order; deleted ones are left out.

        Args:
            request: only what it needs may be known of them.
        """
        nodes = self._store.load_ledger_nodes(node_ids, request) if node_ids else ()
        found = {node.id: HostState(node) for node in nodes}
        return [found[node_id] for node_id in node_ids if node_id in found]

    def get_all_host_states(self) -> Iterator[tuple[tuple[str, str], HostState]]:
        """Yield ((host, nodename), state) of all nodes, read page by page."""
        last = 0
        while page := self._store.list_ledger_nodes(last, PAGE_SIZE):
            for state in map(HostState, page):
                yield state.key, state
            last = page[-1].id
