"""Read what a host has and what its workloads use."""

from typing import TYPE_CHECKING

from nodetracker.accounting.reports.usages import HOST_COLUMNS, HostUsage, describe_host
from nodetracker.fleet.pages import read_items
from nodetracker.model.errors import NotFoundError
from nodetracker.model.fleet import FleetQuery

if TYPE_CHECKING:  # imports more than the commands that only read need
    from nodetracker.ports import ReadingStore


def read_host_usage(store: "ReadingStore", host: str) -> list[HostUsage]:
    """Return the lines of ``host show``.

    Raises:
        NotFoundError: the host has neither nodes nor services.
    """
    query = FleetQuery(host=host, columns=HOST_COLUMNS)
    nodes = [found.node.values for found in read_items(store.list_fleet, query)]
    if not nodes and not store.list_services(host):
        raise NotFoundError(f"no such host: {host}")
    return describe_host(host, nodes, store.sum_usage(host))
