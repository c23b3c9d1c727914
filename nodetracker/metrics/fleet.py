"""Render the metrics of the whole fleet from its overview."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nodetracker.metrics.families import (
    Row,
    families,
    family,
    render_gauge,
    render_labels,
)
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.tolerance import Verdict
from nodetracker.model.units import MILLI, bytes_from_mib
from nodetracker.model.warning import WarningKind
from nodetracker.views.overview import NodeLine, Overview, ResourceUse, ServiceLine, Uses
from nodetracker.views.services import STATES, STATUSES

CONTENT_TYPE = CONTENT_TYPE_LATEST

_PARTS: dict[str, tuple[str, Callable[[ResourceUse], int]]] = {
    "capacity": ("Capacity of {}", lambda use: use.total),
    "reserved": ("Capacity of {} that is reserved for hosts", lambda use: use.reserved),
    "claimed": ("Capacity of {} that claims use", lambda use: use.claimed),
    "unclaimed": ("Capacity of {} that guests without a claim use", lambda use: use.unclaimed),
    "limit": ("Limit of the usage of {} by the allocation ratio", lambda use: use.limit),
}


Read = Callable[[Uses], float]


@dataclass(frozen=True, slots=True)
class _AmountsFamily:
    """A gauge of amounts, of the fleet and of each node.

    Attributes:
        text: ``{}`` is replaced by what has the amounts.
        reads: value of the label ``resource``, None without that label -> how to read a value.
    """

    name: str
    text: str
    reads: Mapping[str | None, Read]


def _list_families() -> Iterator[_AmountsFamily]:
    def read(
        resource: str, part: Callable[[ResourceUse], int], convert: Callable[[int], float]
    ) -> Read:
        return lambda amounts: convert(part(amounts[resource]))

    for name, (text, part) in _PARTS.items():
        yield _AmountsFamily(
            f"cpu_{name}",
            f"{text}, in CPUs that are shared (vcpus) or pinned (pcpus).",
            {"vcpus": read(VCPU, part, lambda x: x / MILLI), "pcpus": read(PCPU, part, float)},
        )
    for noun, resource in (("memory", MEMORY), ("disk", DISK)):
        for name, (text, part) in _PARTS.items():
            yield _AmountsFamily(
                f"{noun}_{name}_bytes",
                f"{text}, in bytes of {noun}.",
                {None: read(resource, part, bytes_from_mib)},
            )


_AMOUNTS = tuple(_list_families())


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
        _render_evacuable(overview),
        *(_render_nodes(overview.nodes[:max_nodes]) if max_nodes else ()),
    ]
    return page + "".join(texts).encode()


_COUNTS: tuple[Row, ...] = (
    ("fleet_nodes{state,status}",
     lambda o: {pair: o.states.get(pair, 0) for pair in product(STATES, STATUSES)},
     "Nodes by state of their host and administrative status."),
    ("fleet_nodes_damaged", lambda o: sum(bool(line.node.damaged) for line in o.nodes),
     "Nodes whose stored row has values that cannot be used."),
    ("fleet_claims{state}", lambda o: {state: o.claims.get(state, 0) for state in ClaimState},
     "Stored claims by state."),
    ("fleet_guests{kind}", lambda o: {kind: o.guests.get(kind, 0) for kind in WorkloadKind},
     "Guests by kind."),
    ("fleet_warnings{kind}", lambda o: {kind: o.warnings.get(kind, 0) for kind in WarningKind},
     "Unresolved warnings by kind, without those that are silenced."),
    ("fleet_host_failures_tolerated", lambda o: _count_tolerated(o),
     "1 while the guests of any one host would fit on the others, 0 while those of some host "
     "would not; no series while that is not known, or not found out recently."),
    ("fleet_warnings_silenced", lambda o: o.silenced, "Unresolved warnings that are silenced."),
)  # fmt: skip
"""Of an `Overview`."""


class _Families(Collector):
    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        """Yield all families but those of single hosts and nodes."""
        overview = self._overview
        yield from families(_COUNTS, overview)
        for amounts in _AMOUNTS:
            values = {label: read(overview.totals) for label, read in amounts.reads.items()}
            yield family(
                f"fleet_{amounts.name}" + ("" if None in values else "{resource}"),
                amounts.text.format("all nodes"),
                values.get(None, values),
            )
        services = overview.services
        binaries = sorted({found.binary for found in services})
        states = [(found.binary, found.state, found.status) for found in services]
        yield family(
            "services{binary,state,status}",
            "Services by binary, state and administrative status.",
            {key: states.count(key) for key in product(binaries, STATES, STATUSES)},
        )


def _render_nodes(lines: Sequence[NodeLine]) -> Iterator[str]:
    names = {name for amounts in _AMOUNTS for name in amounts.reads}
    labels = {name: [_render_node_labels(line, name) for line in lines] for name in names}
    for amounts in _AMOUNTS:
        yield render_gauge(
            f"fleet_node_{amounts.name}",
            amounts.text.format("the node"),
            [
                (labels[name][number], read(line.amounts))
                for number, line in enumerate(lines)
                for name, read in amounts.reads.items()
            ],
        )


def _render_node_labels(line: NodeLine, resource: str | None) -> str:
    labels = {"host": line.node.host, "nodename": line.node.nodename}
    return render_labels(labels if resource is None else labels | {"resource": resource})


def _render_evacuable(overview: Overview) -> str:
    known = [item for item in overview.tolerances if item.verdict is not Verdict.UNKNOWN]
    return render_gauge(
        "host_evacuable",
        "1 while all guests of the host would fit on the others; no series while that is not "
        "known, or not found out recently.",
        [(render_labels({"host": item.host}), item.verdict is Verdict.SURVIVED) for item in known],
    )


def _count_tolerated(overview: Overview) -> int | None:
    found = overview.tolerance
    if found.is_stale or found.verdict in (None, Verdict.UNKNOWN):
        return None
    return int(found.verdict is Verdict.SURVIVED)


_HOSTS: tuple[tuple[str, Callable[[ServiceLine], float | None], str], ...] = (
    ("up", lambda x: x.state == "up",
     "1 while the host is up: its agent sends heartbeats and it is not forced down."),
    ("disabled", lambda x: x.status == "disabled", "1 while the host is disabled."),
    ("maintenance", lambda x: x.maintenance, "1 while the host is in maintenance."),
    ("forced_down", lambda x: x.forced_down,
     "1 while an administrator has forced the host down."),
    ("heartbeat_age_seconds", lambda x: x.heartbeat_age_seconds,
     "Time since the agent's last heartbeat."),
    ("audit_age_seconds", lambda x: x.audit_age_seconds,
     "Time since the host's last audit; no series before the first one."),
    ("clock_skew_seconds", lambda x: x.clock_skew_seconds,
     "The host's clock minus the database's clock."),
)  # fmt: skip


def _render_hosts(services: Sequence[ServiceLine]) -> Iterator[str]:
    hosts = [found for found in services if found.binary == COMPUTE_BINARY]
    labels = [render_labels({"host": x.host}) for x in hosts]
    for name, read, text in _HOSTS:
        found = zip(labels, map(read, hosts), strict=True)
        series = [(label, number) for label, number in found if number is not None]
        yield render_gauge(f"host_{name}", text, series)
