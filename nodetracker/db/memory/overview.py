"""Read the rows of the overview from dicts."""

from collections import Counter

from nodetracker.accounting.usage import charge_of_guest
from nodetracker.db.memory.tables import MemoryRows
from nodetracker.model.fleet import (
    OVERVIEW_COLUMNS,
    OverviewNode,
    OverviewRows,
    UnclaimedSum,
    WarningCount,
)
from nodetracker.model.node import NodeRecord


class MemoryOverview(MemoryRows):
    """The part of `nodetracker.ports.FleetReader` that reads the overview."""

    def read_overview(self) -> OverviewRows:
        """See `Store`."""
        with self._reading() as tables:
            nodes = [tables.nodes[node_id] for node_id in sorted(tables.nodes)]
            warnings = Counter(
                (record.host, record.warning.nodename, record.warning.kind)
                for record in tables.warnings.values()
                if record.resolved_at is None
            )
            return OverviewRows(
                now=self._clock(),
                services=tuple(
                    sorted(tables.services.values(), key=lambda item: (item.host, item.binary))
                ),
                nodes=tuple(map(_overview_node, nodes)),
                unclaimed=tuple(found for node in nodes for found in _list_unclaimed(node)),
                claims=Counter(claim.state for claim in tables.claims.values()),
                warnings=tuple(
                    WarningCount(*key, count) for key, count in sorted(warnings.items())
                ),
            )


def _overview_node(record: NodeRecord) -> OverviewNode:
    columns = {name: getattr(record.values, name) for name in OVERVIEW_COLUMNS}
    return OverviewNode(
        id=record.id, uuid=record.uuid, host=record.host, nodename=record.nodename, **columns
    )


def _list_unclaimed(record: NodeRecord) -> list[UnclaimedSum]:
    """Return an item for each guest without a claim."""
    found = []
    for guest in record.guests.values():
        if guest.claim_uuid is None:
            own = charge_of_guest(guest, overhead_mb=0)
            found.append(
                UnclaimedSum(
                    record.id, guest.kind, 1, own.vcpu_milli, own.pcpus, own.memory_mb, own.disk_mb
                )
            )
    return found
