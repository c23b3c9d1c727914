"""Load all hosts' nodes for schedulers from dicts."""

from collections.abc import Collection

from nodetracker.accounting.usage import is_larger
from nodetracker.db.memory.tables import MemoryRows, with_claims
from nodetracker.model.fleet import LedgerNode, LedgerVersion, LedgerVersions
from nodetracker.model.node import NodeRecord, admission_values
from nodetracker.model.service import COMPUTE_BINARY


class MemoryFleet(MemoryRows):
    """The part of `nodetracker.ports.Store` that schedulers read."""

    def load_ledger_versions(self) -> LedgerVersions:
        """See `Store`."""
        with self._reading() as tables:
            versions = tuple(_version_of(record) for record in tables.nodes.values())
            hosts = {version.host for version in versions}
            services = {
                host: service.availability
                for (host, binary), service in tables.services.items()
                if binary == COMPUTE_BINARY and host in hosts
            }
            return LedgerVersions(self._clock(), versions, services)

    def load_ledger_nodes(self, node_ids: Collection[int]) -> list[LedgerNode]:
        """See `Store`."""
        with self._reading() as tables:
            return [
                _ledger_node(with_claims(tables, record))
                for record in tables.nodes.values()
                if record.id in node_ids
            ]


def _ledger_node(record: NodeRecord) -> LedgerNode:
    return LedgerNode(
        _version_of(record),
        admission_values(record.values),
        tuple(claim for claim in record.claims.values() if claim.is_active),
        {guest.uuid: guest for guest in record.guests.values() if guest.claim_uuid is None},
        record.devices,
        {
            guest.uuid: guest
            for guest in record.guests.values()
            if (claim := record.claims.get(guest.claim_uuid or "")) is not None
            and is_larger(guest, claim)
        },
    )


def _version_of(record: NodeRecord) -> LedgerVersion:
    assert record.created_at is not None
    return LedgerVersion(
        record.id, record.host, record.nodename, record.generation, record.created_at
    )
