"""Render the metrics of nodes: capacity, usage, reservations, guests and facts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import family
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import AuditState
from nodetracker.model.units import bytes_from_gib, bytes_from_mib

Read = Callable[[NodeValues], float | None]


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else bytes_from_mib(mib)


_FAMILIES: tuple[tuple[str, Read | Mapping[str, Read], str], ...] = (
    ("cpu_capacity", {"vcpus": lambda v: v.vcpus, "pcpus": lambda v: v.pcpus},
     "CPUs shared by guests (vcpus) or available for pinning (pcpus)."),
    ("cpu_used", {"vcpus": lambda v: v.vcpus_used, "pcpus": lambda v: v.pcpus_used},
     "CPUs in use: those reserved for the host and those of claims and guests."),
    ("cpu_reserved", {"vcpus": lambda v: v.reserved.get("vcpus")},
     "CPUs reserved for the host."),
    ("memory_capacity_bytes", lambda v: bytes_from_mib(v.memory_mb),
     "Total memory of the node."),
    ("memory_used_bytes", lambda v: bytes_from_mib(v.memory_mb_used),
     "Memory in use: that reserved for the host and that of claims and guests."),
    ("memory_reserved_bytes", lambda v: _bytes(v.reserved.get("memory_mb")),
     "Memory reserved for the host."),
    ("memory_available_bytes", lambda v: _bytes(v.mem_available),
     "Available memory as measured; updated when it changes by more than one percent."),
    ("disk_capacity_bytes", lambda v: bytes_from_gib(v.local_gb),
     "Disk space of the node as claims see it: the size of guests' filesystem in whole GiB."),
    ("disk_used_bytes",
     lambda v: bytes_from_gib(v.disk_used) + bytes_from_mib(v.reserved.get("disk_mb", 0)),
     "Disk space in use: that reserved for the host and that of claims and guests."),
    ("disk_reserved_bytes", lambda v: _bytes(v.reserved.get("disk_mb")),
     "Disk space reserved for the host."),
    ("allocation_ratio",
     {
         "vcpus": lambda v: v.cpu_allocation_ratio,
         "memory": lambda v: v.ram_allocation_ratio,
         "disk": lambda v: v.disk_allocation_ratio,
     },
     "Amount of a resource that may be claimed per physical unit."),
)  # fmt: skip
"""Name behind ``node_``, how a node's value is read, or that of each of its resources, help."""


def render_nodes(nodes: Mapping[str, NodeRecord], audit: AuditState) -> Iterator[Metric]:
    """Yield the families of all nodes; a deleted node has no series."""
    for name, read, text in _FAMILIES:
        if callable(read):
            values = {node: read(record.values) for node, record in nodes.items()}
            yield family(f"node_{name}{{nodename}}", text, values)
        else:
            of_resources = {
                (node, resource): read_resource(record.values)
                for node, record in nodes.items()
                for resource, read_resource in read.items()
            }
            yield family(f"node_{name}{{nodename,resource}}", text, of_resources)
    yield family(
        "node_guests{nodename,kind,state}",
        "Guests on the node by kind and power state.",
        _count(
            nodes,
            lambda r: [(guest.kind, guest.power_state) for guest in r.guests.values()],
            list(product(WorkloadKind, PowerState)),
        ),
    )
    yield family(
        "node_claims{nodename,state}",
        "Claims on the node that count as used, by state.",
        _count(
            nodes, lambda r: [(c.state,) for c in r.claims.values()], [(s,) for s in ACTIVE_STATES]
        ),
    )
    yield family(
        "node_facts{nodename,state}",
        "Facts of the node by state.",
        _count(
            nodes,
            lambda r: [(e.state,) for e in r.values.facts.values()],
            [(s,) for s in FactState],
        ),
    )
    yield family(
        "node_reading_age_seconds{nodename}",
        "Time since the node was last read completely and stored; no series before that.",
        {name: _age_of(name, audit) for name in nodes},
    )


def _count(
    nodes: Mapping[str, NodeRecord],
    list_keys: Callable[[NodeRecord], Iterable[tuple[str, ...]]],
    keys: Iterable[tuple[str, ...]],
) -> dict[tuple[str, ...], int]:
    """Return (nodename, *key) -> how often each node has the key."""
    found = {name: Counter(list_keys(record)) for name, record in nodes.items()}
    return {(name, *key): counted[key] for name, counted in found.items() for key in keys}


def _age_of(nodename: str, audit: AuditState) -> float | None:
    entry = audit.nodes.get(nodename)
    return audit.age_seconds if entry is None else entry["age_seconds"]
