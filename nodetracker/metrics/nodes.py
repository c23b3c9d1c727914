"""Metrics of the nodes: what each has, what of it is promised, its guests and its facts."""

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
    """Give the families of all nodes; a node that is gone has no series.

    Args:
        nodes: as stored after the last audit that was stored.
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
        "CPUs that guests share (vcpus) or may be pinned to (pcpus).",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.vcpus, "pcpus": lambda v: v.pcpus}),
    )
    yield gauges(
        "node_cpu_used",
        "CPUs that are promised: reserved ones and those of guests.",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.vcpus_used, "pcpus": lambda v: v.pcpus_used}),
    )
    yield gauges(
        "node_cpu_reserved",
        "CPUs that are kept for the host.",
        _RESOURCE,
        of_resources({"vcpus": lambda v: v.reserved.get("vcpus")}),
    )
    yield gauges(
        "node_memory_capacity_bytes",
        "Memory that the node has.",
        _NODE,
        of_each(lambda v: bytes_from_mib(v.memory_mb)),
    )
    yield gauges(
        "node_memory_used_bytes",
        "Memory that is promised: reserved and that of guests.",
        _NODE,
        of_each(lambda v: bytes_from_mib(v.memory_mb_used)),
    )
    yield gauges(
        "node_memory_reserved_bytes",
        "Memory that is kept for the host.",
        _NODE,
        of_each(lambda v: _bytes(v.reserved.get("memory_mb"))),
    )
    yield gauges(
        "node_memory_available_bytes",
        "Memory that was measured as available; renewed when it moves by more than a hundredth.",
        _NODE,
        of_each(lambda v: _bytes(v.mem_available)),
    )
    yield gauges(
        "node_disk_capacity_bytes",
        "Size of the filesystem of guests' disks.",
        _NODE,
        of_each(lambda v: bytes_from_gib(v.local_gb)),
    )
    yield gauges(
        "node_disk_used_bytes",
        "Disk that is promised: reserved and that of guests.",
        _NODE,
        of_each(lambda v: bytes_from_gib(v.local_gb_used)),
    )
    yield gauges(
        "node_disk_reserved_bytes",
        "Disk that is kept for the host.",
        _NODE,
        of_each(lambda v: _bytes(v.reserved.get("disk_mb"))),
    )
    yield gauges(
        "node_allocation_ratio",
        "How much of a resource may be promised for each one that is there.",
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
        "Guests on the node by what they are and what they are doing.",
        ("nodename", "kind", "state"),
        _count_guests(nodes),
    )
    yield gauges(
        "node_facts",
        "Facts of the node by how far their values may be trusted.",
        ("nodename", "state"),
        _count_facts(nodes),
    )
    yield gauges(
        "node_reading_age_seconds",
        "Time since the node was last read in full and stored; no series for never.",
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
