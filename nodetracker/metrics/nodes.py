"""Render the metrics of nodes: capacity, usage, reservations, guests and facts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import product

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import Samples, gauges
from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import AuditState
from nodetracker.units import bytes_from_gib, bytes_from_mib

_NODE = ("nodename",)
_RESOURCE = ("nodename", "resource")

Read = Callable[[NodeValues], float | None]


def render_nodes(nodes: Mapping[str, NodeRecord], audit: AuditState) -> Iterator[Metric]:
    """Yield the families of all nodes; a deleted node has no series.

    Args:
        nodes: the nodes as of the last stored audit.
    """

    def of_each(read: Read) -> Samples:
        return [((name,), read(record.values)) for name, record in nodes.items()]

    def of_resources(read_by_resource: Mapping[str, Read]) -> Samples:
        return [
            ((name, resource), read(record.values))
            for name, record in nodes.items()
            for resource, read in read_by_resource.items()
        ]

    yield gauges(
        "node_cpu_capacity",
        "CPUs shared by guests (vcpus) or available for pinning (pcpus).",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.vcpus, "pcpus": lambda v: v.pcpus}),
    )
    yield gauges(
        "node_cpu_used",
        "CPUs in use: those reserved for the host and those of claims and guests.",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.vcpus_used, "pcpus": lambda v: v.pcpus_used}),
    )
    yield gauges(
        "node_cpu_reserved",
        "CPUs reserved for the host.",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.reserved.get("vcpus")}),
    )
    yield gauges(
        "node_memory_capacity_bytes",
        "Total memory of the node.",
        _NODE,
        of_each(lambda v: bytes_from_mib(v.memory_mb)),
    )
    yield gauges(
        "node_memory_used_bytes",
        "Memory in use: that reserved for the host and that of claims and guests.",
        _NODE,
        of_each(lambda v: bytes_from_mib(v.memory_mb_used)),
    )
    yield gauges(
        "node_memory_reserved_bytes",
        "Memory reserved for the host.",
        _NODE,
        of_each(lambda v: _bytes(v.reserved.get("memory_mb"))),
    )
    yield gauges(
        "node_memory_available_bytes",
        "Available memory as measured; updated when it changes by more than one percent.",
        _NODE,
        of_each(lambda v: _bytes(v.mem_available)),
    )
    yield gauges(
        "node_disk_capacity_bytes",
        "Size of the filesystem that holds guests' disks.",
        _NODE,
        of_each(lambda v: bytes_from_gib(v.local_gb)),
    )
    yield gauges(
        "node_disk_used_bytes",
        "Disk space in use: that reserved for the host and that of claims and guests.",
        _NODE,
        of_each(lambda v: bytes_from_gib(v.local_gb_used)),
    )
    yield gauges(
        "node_disk_reserved_bytes",
        "Disk space reserved for the host.",
        _NODE,
        of_each(lambda v: _bytes(v.reserved.get("disk_mb"))),
    )
    yield gauges(
        "node_allocation_ratio",
        "Amount of a resource that may be claimed per physical unit.",
        _RESOURCE,
        of_resources(
            {
                "vcpus": lambda v: v.cpu_allocation_ratio,
                "memory": lambda v: v.ram_allocation_ratio,
                "disk": lambda v: v.disk_allocation_ratio,
            }
        ),
    )
    yield gauges(
        "node_guests",
        "Guests on the node by kind and power state.",
        ("nodename", "kind", "state"),
        _count_guests(nodes),
    )
    yield gauges(
        "node_facts",
        "Facts of the node by state.",
        ("nodename", "state"),
        _count_facts(nodes),
    )
    yield gauges(
        "node_reading_age_seconds",
        "Time since the node was last read completely and stored; no series before that.",
        _NODE,
        [((name,), _age_of(name, audit)) for name in nodes],
    )


def _count_guests(nodes: Mapping[str, NodeRecord]) -> Samples:
    for name, record in nodes.items():
        counted = Counter((guest.kind, guest.power_state) for guest in record.guests.values())
        for kind, state in product(WorkloadKind, PowerState):
            yield (name, kind.value, state.value), counted[kind, state]


def _count_facts(nodes: Mapping[str, NodeRecord]) -> Samples:
    for name, record in nodes.items():
        counted = Counter(entry.state for entry in record.values.facts.values())
        for state in FactState:
            yield (name, state.value), counted[state]


def _age_of(nodename: str, audit: AuditState) -> float | None:
    entry = audit.nodes.get(nodename)
    return audit.age_seconds if entry is None else entry["age_seconds"]


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else bytes_from_mib(mib)
