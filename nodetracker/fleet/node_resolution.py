"""Find the node that a request is for: the one that it names, or the only one of its host."""

from typing import TYPE_CHECKING

from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.node import NodeRecord

if TYPE_CHECKING:  # imports more than the commands that only read need
    from nodetracker.ports import FleetStore

_MAX_NAMED = 10


def find_node(store: "FleetStore", host: str, nodename: str | None = None) -> NodeRecord:
    """Return a node's row, without guests and devices.

    Args:
        nodename: None = the host's only node.

    Raises:
        NotFoundError: the host has no such node, or none at all.
        RefusedError: the host has several nodes and none is named.
    """
    records = store.list_nodes(host, nodename)
    if not records:
        raise missing_node(host, nodename)
    if len(records) > 1:
        names = [record.nodename for record in records]
        listed = ", ".join(names[:_MAX_NAMED] + ["..."] * (len(names) > _MAX_NAMED))
        raise RefusedError(f"host {host} has {len(names)} nodes: name one of them ({listed})")
    return records[0]


def missing_node(host: str, nodename: str | None) -> NotFoundError:
    """Return the error for a node that does not exist."""
    if nodename is None:
        return NotFoundError(f"host {host} has no nodes")
    return NotFoundError(f"no such node: {nodename} on host {host}")
