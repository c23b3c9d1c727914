"""Look up in the store what a consumer in placement represents."""

from nodetracker.accounting.placement.placed import PlacedConsumer
from nodetracker.accounting.placement.tree import ConsumerType
from nodetracker.model.listing import ClaimQuery
from nodetracker.ports import Store


class StoreLedger:
    """`nodetracker.placement.reconciler.Ledger` over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_known(self, consumer: PlacedConsumer) -> bool:
        """Return whether the ledger has, or had, the workload or migration of a consumer.

        Raises:
            StoreError: the store did not answer.
        """
        if consumer.type == ConsumerType.MIGRATION:
            return bool(self._store.list_migrations(uuid=consumer.uuid))
        query = ClaimQuery(workload_uuid=consumer.uuid, limit=1)
        return bool(self._store.list_claim_page(query).items)
