"""Render the metrics of the whole fleet from its overview."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nodetracker.accounting.reports.overview import (
    Amounts,
    NodeLine,
    Overview,
    ResourceUse,
    ServiceLine,
)
from nodetracker.accounting.reports.services import STATES, STATUSES
from nodetracker.metrics.families import gauges, render_gauge, render_labels
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.units import MILLI, bytes_from_mib
from nodetracker.model.warning import WarningKind

CONTENT_TYPE = CONTENT_TYPE_LATEST

_PARTS: dict[str, tuple[str, Callable[[ResourceUse], int]]] = {
    "capacity": ("Capacity of {}", lambda use: use.total),
    "reserved": ("Capacity of {} that is reserved for hosts", lambda use: use.reserved),
    "claimed": ("Capacity of {} that claims use", lambda use: use.claimed),
    "unclaimed": ("Capacity of {} that guests without a claim use", lambda use: use.unclaimed),
    "limit": ("Limit of the usage of {} by the allocation ratio", lambda use: use.limit),
}


Read = Callable[[Amounts], float]


@dataclass(frozen=True, slots=True)
class _Family:
    """A gauge of amounts, of the fleet and of each node.

    Attributes:
        text: ``{}`` is replaced by what has the amounts.
        reads: value of the label ``resource``, None without that label -> how to read a value.
    """

    name: str
    text: str
    reads: Mapping[str | None, Read]


def _list_families() -> Iterator[_Family]:
    def read(
        resource: str, part: Callable[[ResourceUse], int], convert: Callable[[int], float]
    ) -> Read:
        return lambda amounts: convert(part(amounts[resource]))

    for name, (text, part) in _PARTS.items():
        yield _Family(
            f"cpu_{name}",
            f"{text}, in CPUs that are shared (vcpus) or pinned (pcpus).",
            {"vcpus": read(VCPU, part, lambda x: x / MILLI), "pcpus": read(PCPU, part, float)},
        )
    for noun, resource in (("memory", MEMORY), ("disk", DISK)):
        for name, (text, part) in _PARTS.items():
            yield _Family(
                f"{noun}_{name}_bytes",
                f"{text}, in bytes of {noun}.",
                {None: read(resource, part, bytes_from_mib)},
            )


_FAMILIES = tuple(_list_families())


def render_page(overview: Overview, max_nodes: int) -> bytes:
    """Return the page of the fleet's metrics in the text format.

    Args:
        max_nodes: nodes that have series of their own, at most.
    """
    registry = CollectorRegistry()
    registry.register(_Families(overview))
    page = generate_latest(registry)
    texts = [
        *_render_hosts(overview.services),
        *(_render_nodes(overview.nodes[:max_nodes]) if max_nodes else ()),
    ]
    return page + "".join(texts).encode()


class _Families(Collector):
    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        """Yield all families but those of single hosts and nodes."""
        yield from _render_counts(self._overview)
        yield from _render_totals(self._overview.totals)
        yield from _render_services(self._overview)


def _render_counts(overview: Overview) -> Iterator[Metric]:
    yield gauges(
        "fleet_nodes",
        "Nodes by state of their host and administrative status.",
        ("state", "status"),
        [(pair, overview.states.get(pair, 0)) for pair in product(STATES, STATUSES)],
    )
    yield gauges(
        "fleet_claims",
        "Stored claims by state.",
        ("state",),
        [((state.value,), overview.claims.get(state, 0)) for state in ClaimState],
    )
    yield gauges(
        "fleet_guests",
        "Guests by kind.",
        ("kind",),
        [((kind.value,), overview.guests.get(kind, 0)) for kind in WorkloadKind],
    )
    yield gauges(
        "fleet_warnings",
        "Unresolved warnings by kind.",
        ("kind",),
        [((kind.value,), overview.warnings.get(kind, 0)) for kind in WarningKind],
    )


def _render_totals(totals: Amounts) -> Iterator[Metric]:
    for family in _FAMILIES:
        samples = [
            (() if label is None else (label,), read(totals))
            for label, read in family.reads.items()
        ]
        labels = () if None in family.reads else ("resource",)
        yield gauges(f"fleet_{family.name}", family.text.format("all nodes"), labels, samples)


def _render_nodes(lines: Sequence[NodeLine]) -> Iterator[str]:
    names = {name for family in _FAMILIES for name in family.reads}
    labels = {name: [_render_node_labels(line, name) for line in lines] for name in names}
    for family in _FAMILIES:
        yield render_gauge(
            f"fleet_node_{family.name}",
            family.text.format("the node"),
            [
                (labels[name][number], read(line.amounts))
                for number, line in enumerate(lines)
                for name, read in family.reads.items()
            ],
        )


def _render_node_labels(line: NodeLine, resource: str | None) -> str:
    labels = {"host": line.node.host, "nodename": line.node.nodename}
    return render_labels(labels if resource is None else labels | {"resource": resource})


def _render_services(overview: Overview) -> Iterator[Metric]:
    services = overview.services
    binaries = sorted({found.binary for found in services})
    states = [(found.binary, found.state, found.status) for found in services]
    yield gauges(
        "services",
        "Services by binary, state and administrative status.",
        ("binary", "state", "status"),
        [(key, states.count(key)) for key in product(binaries, STATES, STATUSES)],
    )


def _render_hosts(services: Sequence[ServiceLine]) -> Iterator[str]:
    hosts = [found for found in services if found.binary == COMPUTE_BINARY]
    labels = [render_labels({"host": x.host}) for x in hosts]
    read: dict[str, tuple[str, Callable[[ServiceLine], float | None]]] = {
        "up": (
            "1 while the host is up: its agent sends heartbeats and it is not forced down.",
            lambda x: x.state == "up",
        ),
        "disabled": ("1 while the host is disabled.", lambda x: x.status == "disabled"),
        "maintenance": ("1 while the host is in maintenance.", lambda x: x.maintenance),
        "forced_down": (
            "1 while an administrator has forced the host down.",
            lambda x: x.forced_down,
        ),
        "heartbeat_age_seconds": (
            "Time since the agent's last heartbeat.",
            lambda x: x.heartbeat_age_seconds,
        ),
        "audit_age_seconds": (
            "Time since the host's last audit; no series before the first one.",
            lambda x: x.audit_age_seconds,
        ),
        "clock_skew_seconds": (
            "The host's clock minus the database's clock.",
            lambda x: x.clock_skew_seconds,
        ),
    }
    for name, (text, value) in read.items():
        found = zip(labels, map(value, hosts), strict=True)
        series = [(label, number) for label, number in found if number is not None]
        yield render_gauge(f"host_{name}", text, series)
