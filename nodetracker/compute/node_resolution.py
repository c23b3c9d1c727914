"""Which node is meant where none is named."""

from nodetracker.errors import RefusedError
from nodetracker.ports import FleetStore


def resolve_only_node(store: FleetStore, host: str) -> str:
    """Return the name of a host's only node.

    Raises:
        RefusedError: it has several, or none yet.
    """
    names = sorted(record.nodename for record in store.list_nodes(host))
    if len(names) != 1:
        told = ", ".join(names) or "none yet"
        raise RefusedError(f"host {host} has {len(names)} nodes: name one of them ({told})")
    return names[0]
