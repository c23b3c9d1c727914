"""Remove the providers of deleted nodes from placement."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from nodetracker.accounting.placement.removal import plan_removal
from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementError,
    PlacementInUseError,
    PlacementNotFoundError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.tree_reader import read_tree
from nodetracker.ports import RemovalStore

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 300.0
"""How long a removal waits that others' consumers prevent."""

MAX_CONFLICTS = 4
_MOST_WRITES = 100


class ProviderRemover:
    """Works removals off; several processes may, as each takes its own by lease."""

    def __init__(self, client: PlacementClient, store: RemovalStore) -> None:
        self._client = client
        self._store = store

    def remove_due(self, query: RemovalQuery) -> Iterator[ProviderRemoval]:
        """Attempt the removals that are due; yield each, with its error if it has to stay.

        Raises:
            PlacementUnavailableError: those that are left are due again when their
                leases end.
            StoreError: the database operation failed; as above.
        """
        for removal in self._store.take_provider_removals(query):
            yield self._attempt(removal)

    def remove(self, uuid: str) -> str | None:
        """Remove the tree of a provider; return why it has to stay, None once it is gone.

        Raises:
            PlacementUnavailableError: no usable answer.
        """
        for _ in range(MAX_CONFLICTS):
            try:
                return self._remove_once(uuid)
            except (PlacementConflictError, PlacementNotFoundError, PlacementInUseError) as error:
                problem = error
            except PlacementUnavailableError:
                raise
            except PlacementError as error:
                return error.reason
        return f"others change it all the time: {problem.reason}"

    def _attempt(self, removal: ProviderRemoval) -> ProviderRemoval:
        error = self.remove(removal.provider_uuid)
        if error is None:
            self._store.finish_provider_removal(removal.provider_uuid)
            LOG.info(
                "Provider %s of the deleted node %s was removed from placement",
                removal.provider_uuid, removal.name,
            )  # fmt: skip
        else:
            self._store.fail_provider_removal(removal.provider_uuid, error, RETRY_SECONDS)
        return replace(removal, error=error)

    def _remove_once(self, uuid: str) -> str | None:
        plan = plan_removal(read_tree(self._client, uuid))
        for writes in _batches(plan.writes):
            self._write(writes)
        for provider in plan.deletions:
            self._client.delete_provider(provider)
        return plan.obstacle

    def _write(self, writes: tuple[ConsumerWrite, ...]) -> None:
        """Write consumers; those that are not written in time are written in halves."""
        try:
            self._client.write_consumers(writes)
        except PlacementTimeoutError:
            if len(writes) == 1:
                raise
            middle = len(writes) // 2
            self._write(writes[:middle])
            self._write(writes[middle:])


def _batches(writes: tuple[ConsumerWrite, ...]) -> Iterator[tuple[ConsumerWrite, ...]]:
    for start in range(0, len(writes), _MOST_WRITES):
        yield writes[start : start + _MOST_WRITES]
