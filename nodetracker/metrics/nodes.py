"""Render the metrics of nodes: capacity, usage, reservations, guests and facts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import Samples, gauges
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import AuditState
from nodetracker.model.units import bytes_from_gib, bytes_from_mib

_NODE = ("nodename",)
_RESOURCE = ("nodename", "resource")

Read = Callable[[NodeValues], float | None]


@dataclass(frozen=True, slots=True)
class _Family:
    """Gauges of each node that are read from its values.

    Attributes:
        read: the value of a node, or of each of its resources.
    """

    name: str
    help: str
    read: Read | Mapping[str, Read]

    def render(self, nodes: Mapping[str, NodeRecord]) -> Metric:
        read = self.read
        if callable(read):
            each = [((name,), read(record.values)) for name, record in nodes.items()]
            return gauges(self.name, self.help, _NODE, each)
        of_resources = [
            ((name, resource), read_resource(record.values))
            for name, record in nodes.items()
            for resource, read_resource in read.items()
        ]
        return gauges(self.name, self.help, _RESOURCE, of_resources)


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else bytes_from_mib(mib)


_FAMILIES = (
    _Family(
        "node_cpu_capacity",
        "CPUs shared by guests (vcpus) or available for pinning (pcpus).",
        {"vcpus": lambda v: v.vcpus, "pcpus": lambda v: v.pcpus},
    ),
    _Family(
        "node_cpu_used",
        "CPUs in use: those reserved for the host and those of claims and guests.",
        {"vcpus": lambda v: v.vcpus_used, "pcpus": lambda v: v.pcpus_used},
    ),
    _Family(
        "node_cpu_reserved",
        "CPUs reserved for the host.",
        {"vcpus": lambda v: v.reserved.get("vcpus")},
    ),
    _Family(
        "node_memory_capacity_bytes",
        "Total memory of the node.",
        lambda v: bytes_from_mib(v.memory_mb),
    ),
    _Family(
        "node_memory_used_bytes",
        "Memory in use: that reserved for the host and that of claims and guests.",
        lambda v: bytes_from_mib(v.memory_mb_used),
    ),
    _Family(
        "node_memory_reserved_bytes",
        "Memory reserved for the host.",
        lambda v: _bytes(v.reserved.get("memory_mb")),
    ),
    _Family(
        "node_memory_available_bytes",
        "Available memory as measured; updated when it changes by more than one percent.",
        lambda v: _bytes(v.mem_available),
    ),
    _Family(
        "node_disk_capacity_bytes",
        "Disk space of the node as claims see it: the size of guests' filesystem in whole GiB.",
        lambda v: bytes_from_gib(v.local_gb),
    ),
    _Family(
        "node_disk_used_bytes",
        "Disk space in use: that reserved for the host and that of claims and guests.",
        lambda v: bytes_from_gib(v.disk_used) + bytes_from_mib(v.reserved.get("disk_mb", 0)),
    ),
    _Family(
        "node_disk_reserved_bytes",
        "Disk space reserved for the host.",
        lambda v: _bytes(v.reserved.get("disk_mb")),
    ),
    _Family(
        "node_allocation_ratio",
        "Amount of a resource that may be claimed per physical unit.",
        {
            "vcpus": lambda v: v.cpu_allocation_ratio,
            "memory": lambda v: v.ram_allocation_ratio,
            "disk": lambda v: v.disk_allocation_ratio,
        },
    ),
)


def render_nodes(nodes: Mapping[str, NodeRecord], audit: AuditState) -> Iterator[Metric]:
    """Yield the families of all nodes; a deleted node has no series.

    Args:
        nodes: the nodes as of the last stored audit.
    """
    for family in _FAMILIES:
        yield family.render(nodes)
    yield gauges(
        "node_guests",
        "Guests on the node by kind and power state.",
        ("nodename", "kind", "state"),
        _count_guests(nodes),
    )
    yield gauges(
        "node_claims",
        "Claims on the node that count as used, by state.",
        ("nodename", "state"),
        _count_claims(nodes),
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


def _count_claims(nodes: Mapping[str, NodeRecord]) -> Samples:
    for name, record in nodes.items():
        counted = Counter(claim.state for claim in record.claims.values())
        for state in ACTIVE_STATES:
            yield (name, state.value), counted[state]


def _count_facts(nodes: Mapping[str, NodeRecord]) -> Samples:
    for name, record in nodes.items():
        counted = Counter(entry.state for entry in record.values.facts.values())
        for state in FactState:
            yield (name, state.value), counted[state]


def _age_of(nodename: str, audit: AuditState) -> float | None:
    entry = audit.nodes.get(nodename)
    return audit.age_seconds if entry is None else entry["age_seconds"]
