"""Render the metrics of the whole fleet from its overview."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nodetracker.accounting.reports.overview import Amounts, Overview, ResourceUse, ServiceLine
from nodetracker.accounting.reports.summary import STATES, STATUSES
from nodetracker.metrics.families import gauges
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import WarningKind
from nodetracker.units import MILLI, bytes_from_mib

CONTENT_TYPE = CONTENT_TYPE_LATEST

_PARTS: dict[str, tuple[str, Callable[[ResourceUse], int]]] = {
    "capacity": ("Capacity", lambda use: use.total),
    "reserved": ("Part reserved for hosts", lambda use: use.reserved),
    "claimed": ("Part used by claims", lambda use: use.claimed),
    "unclaimed": ("Part used by guests without a claim", lambda use: use.unclaimed),
    "limit": (
        "Limit of all usage by the allocation ratio",
        lambda x: x.limit,
    ),
}


def render_page(overview: Overview, has_nodes: bool) -> bytes:
    """Return the page of the fleet's metrics in the text format.

    Args:
        has_nodes: with series for each node.
    """
    registry = CollectorRegistry()
    registry.register(_Families(overview, has_nodes))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, overview: Overview, has_nodes: bool) -> None:
        self._overview = overview
        self._has_nodes = has_nodes

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        overview = self._overview
        yield from _render_counts(overview)
        yield from _render_amounts("fleet", "of all nodes", (), [((), overview.totals)])
        yield from _render_services(overview)
        if self._has_nodes:
            lines = [((x.node.host, x.node.nodename), x.amounts) for x in overview.nodes]
            yield from _render_amounts("fleet_node", "of the node", ("host", "nodename"), lines)


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


def _render_amounts(
    prefix: str,
    whose: str,
    labels: tuple[str, ...],
    lines: Sequence[tuple[tuple[str, ...], Amounts]],
) -> Iterator[Metric]:
    for part, (text, read) in _PARTS.items():
        yield gauges(
            f"{prefix}_cpu_{part}",
            f"{text} {whose}, in CPUs that are shared (vcpus) or pinned (pcpus).",
            (*labels, "resource"),
            [
                ((*values, name), read(amounts[resource]) / divisor)
                for values, amounts in lines
                for name, resource, divisor in (("vcpus", VCPU, MILLI), ("pcpus", PCPU, 1))
            ],
        )
    for noun, resource in (("memory", MEMORY), ("disk", DISK)):
        for part, (text, read) in _PARTS.items():
            yield gauges(
                f"{prefix}_{noun}_{part}_bytes",
                f"{text} {whose}, in bytes of {noun}.",
                labels,
                [(values, bytes_from_mib(read(amounts[resource]))) for values, amounts in lines],
            )


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
    hosts = [found for found in services if found.binary == COMPUTE_BINARY]
    read: dict[str, tuple[str, Callable[[ServiceLine], float | None]]] = {
        "up": ("1 while the host's agent is up.", lambda x: x.state == "up"),
        "disabled": ("1 while the host is disabled.", lambda x: x.status == "disabled"),
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
        yield gauges(f"host_{name}", text, ("host",), [((x.host,), value(x)) for x in hosts])
