"""Load all hosts' nodes for schedulers from dicts."""

from collections.abc import Collection, Sequence
from datetime import datetime

from nodetracker.accounting.usage import may_be_larger
from nodetracker.db.memory.tables import MemoryRows, Tables, with_claims
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.node import NodeRecord, admission_values
from nodetracker.model.service import COMPUTE_BINARY


class MemoryFleet(MemoryRows):
    """The part of `nodetracker.ports.Store` that schedulers read."""

    def load_ledger_nodes(
        self, node_ids: Collection[int], request: ClaimRequest | None = None
    ) -> list[LedgerNode]:
        """See `Store`; nothing is left out."""
        with self._reading() as tables:
            return self._ledger_nodes(tables, sorted(tables.nodes.keys() & set(node_ids)))

    def list_ledger_nodes(self, after: int, limit: int) -> list[LedgerNode]:
        """See `Store`."""
        with self._reading() as tables:
            node_ids = sorted(node_id for node_id in tables.nodes if node_id > after)
            return self._ledger_nodes(tables, node_ids[:limit])

    def _ledger_nodes(self, tables: Tables, node_ids: Sequence[int]) -> list[LedgerNode]:
        now = self._clock()
        return [_ledger_node(tables, tables.nodes[node_id], now) for node_id in node_ids]


def _ledger_node(tables: Tables, record: NodeRecord, now: datetime) -> LedgerNode:
    record = with_claims(tables, record)
    service = tables.services.get((record.host, COMPUTE_BINARY))
    return LedgerNode(
        record.id,
        record.host,
        record.nodename,
        now,
        None if service is None else service.availability,
        admission_values(record.values),
        tuple(claim for claim in record.claims.values() if claim.is_active),
        {guest.uuid: guest for guest in record.guests.values() if guest.claim_uuid is None},
        record.devices,
        {
            guest.uuid: guest
            for guest in record.guests.values()
            if (claim := record.claims.get(guest.claim_uuid or "")) is not None
            and may_be_larger(guest, claim)
        },
    )
