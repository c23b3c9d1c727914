"""What schedulers read of all hosts, over dicts."""

from collections.abc import Collection

from nodetracker.db.memory.tables import MemoryRows, with_claims
from nodetracker.model.fleet import LedgerNode, LedgerStamp, LedgerStamps
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY


class MemoryFleet(MemoryRows):
    """The part of `nodetracker.ports.Store` that schedulers read."""

    def load_ledger_stamps(self) -> LedgerStamps:
        """See `Store`."""
        with self._reading() as tables:
            stamps = tuple(_stamp_of(record) for record in tables.nodes.values())
            hosts = {stamp.host for stamp in stamps}
            services = {
                host: service.gate
                for (host, binary), service in tables.services.items()
                if binary == COMPUTE_BINARY and host in hosts
            }
            return LedgerStamps(self._clock(), stamps, services)

    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                LedgerNode(
                    _stamp_of(record),
                    record.values,
                    tuple(
                        claim
                        for claim in with_claims(tables, record).claims.values()
                        if claim.is_active
                    ),
                    {
                        guest.uuid: guest
                        for guest in record.guests.values()
                        if guest.claim_uuid is None
                    },
                    record.devices,
                )
                for record in tables.nodes.values()
                if record.id in node_ids
            ]


def _stamp_of(record: NodeRecord) -> LedgerStamp:
    assert record.created_at is not None
    return LedgerStamp(
        record.id, record.host, record.nodename, record.generation, record.created_at
    )
