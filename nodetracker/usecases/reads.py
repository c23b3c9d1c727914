"""Read the fleet: whole lists, one node by name, a node at one time, and what a host has."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from nodetracker.accounting.liveness import Liveness
from nodetracker.model.change import EventKind, HistoryEntry
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import HistoryQuery, Page, PageQuery, WorkloadQuery
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceRecord

if TYPE_CHECKING:  # more than the commands that only read, or an agent, need
    from nodetracker.ports import FleetStore, ReadingStore
    from nodetracker.views.history import Names
    from nodetracker.views.usages import HostUsage
    from nodetracker.views.warnings import HostDown


Q = TypeVar("Q", bound=PageQuery)
T = TypeVar("T")


def read_pages(list_page: Callable[[Q], Page[T]], query: Q) -> Iterator[Page[T]]:
    """Yield the pages of a list from `query.after` to its end, each read when it is needed.

    Args:
        list_page: a method of `FleetReader`.
    """
    while True:
        page = list_page(query)
        yield page
        if page.next is None:
            return
        query = replace(query, after=page.next)


def read_items(list_page: Callable[[Q], Page[T]], query: Q) -> Iterator[T]:
    """Yield the items of all pages of a list, as `read_pages` does."""
    for page in read_pages(list_page, query):
        yield from page.items


_MAX_NAMED = 10
_MAX_ASKED = 100
_MAX_OLDER = 1000


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


def find_agent(store: "FleetStore", host: str) -> ServiceRecord | None:
    """Return the service of a host's agent."""
    return next(iter(store.list_services(host, COMPUTE_BINARY)), None)


def require_agent(store: "FleetStore", host: str) -> ServiceRecord:
    """Return the service of a host's agent.

    Raises:
        NotFoundError: the host has none.
    """
    service = find_agent(store, host)
    if service is None:
        raise NotFoundError(f"no such host: {host}")
    return service


def read_liveness(store: "FleetStore", now: datetime, service_down_time: int) -> Liveness:
    """Return what decides about services at a time, by one statement."""
    return Liveness.of(store.list_services(binary=CONDUCTOR_BINARY), now, service_down_time)


def read_live_pages(
    store: "FleetStore", list_page: Callable[[Q], Page[T]], query: Q, service_down_time: int
) -> Iterator[tuple[Page[T], Liveness]]:
    """Yield pages as `read_pages` does, each with what decides about services at its time."""
    liveness: Liveness | None = None
    for page in read_pages(list_page, query):
        if liveness is None:
            liveness = read_liveness(store, page.now, service_down_time)
        yield page, liveness._replace(now=page.now)


def read_hosts_down(
    store: "ReadingStore", now: datetime, service_down_time: int, host: str | None = None
) -> "dict[str, HostDown]":
    """Return the hosts that are down, or one host if it is, by one statement."""
    from nodetracker.views.warnings import find_hosts_down

    services = store.list_outage_services(service_down_time, host)
    return find_hosts_down(services, Liveness.of(services, now, service_down_time))


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


def read_host_usage(store: "ReadingStore", host: str) -> "list[HostUsage]":
    """Return the lines of ``host show``.

    Raises:
        NotFoundError: the host has neither nodes nor services.
    """
    from nodetracker.views.usages import HOST_COLUMNS, describe_host

    query = FleetQuery(host=host, columns=HOST_COLUMNS)
    nodes = [found.node.values for found in read_items(store.list_fleet, query)]
    if not nodes and not store.list_services(host):
        raise NotFoundError(f"no such host: {host}")
    return describe_host(host, nodes, store.sum_usage(host))


def name_guests(
    store: "ReadingStore", query: HistoryQuery, entries: Sequence[HistoryEntry]
) -> "Names":
    """Return the names of the guests of entries: from those, from workloads and earlier entries.

    Args:
        query: selects the entries.
        entries: oldest first.
    """
    from nodetracker.views.history import collect_names, find_unnamed

    names: dict[str, str] = {**collect_names(entries)}
    unnamed = find_unnamed(entries, names)
    for asked in sorted(unnamed)[:_MAX_ASKED]:
        rows = store.list_workloads(WorkloadQuery(uuid=asked)).items
        names |= {row.uuid: row.name for row in rows if row.name}
    if unnamed <= names.keys():
        return _name_claims(entries, names)
    older = replace(query, kinds=(), since=None, until=entries[0].at, is_ascending=False)
    found = list(islice(read_items(store.list_history_page, older), _MAX_OLDER))
    return _name_claims(entries, {**collect_names([*reversed(found), *entries]), **names})


def _name_claims(entries: Iterable[HistoryEntry], names: Mapping[str, str]) -> "Names":
    """Add the claims whose workloads have a name."""
    pairs = {
        entry.diff["uuid"]: names.get(entry.diff["workload_uuid"])
        for entry in chain.from_iterable(entry.expand() for entry in entries)
        if entry.kind == EventKind.CLAIM and "workload_uuid" in entry.diff
    }
    return {uuid: name for uuid, name in pairs.items() if name} | dict(names)
