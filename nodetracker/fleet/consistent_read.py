"""Read a node with its guests and claims as they were at one time."""

from typing import TYPE_CHECKING

from nodetracker.fleet.node_resolution import missing_node
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.node import NodeRecord

if TYPE_CHECKING:  # imports more than the commands that only read need
    from nodetracker.ports import ReadingStore

_READINGS = 5


def read_consistently(store: "ReadingStore", node: NodeRecord) -> NodeRecord:
    """Return a node with its guests and claims of one generation.

    They are read by several statements. If a claim changes the node between
    them, all are read again, a few times.

    Raises:
        NotFoundError: the node was deleted.
    """
    for _ in range(_READINGS):
        records = store.load_nodes(node.host, [node.id])
        found = store.list_fleet(FleetQuery(id=node.id)).items
        if not records or not found:
            raise missing_node(node.host, node.nodename)
        if found[0].node.generation == records[0].generation:
            break
    return records[0]
