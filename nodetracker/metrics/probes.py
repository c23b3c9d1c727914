"""Metrics of the probes: how their calls ended, how long they took, how many hang."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import counters, gauge
from nodetracker.model.probe import ProbeStatistics


class ProbeSource(Protocol):
    """Whoever runs the probes."""

    def statistics(self) -> Mapping[str, ProbeStatistics]:
        """Return what was counted, by probe name."""

    @property
    def stuck_count(self) -> int:
        """How many calls hang now."""


def render_probes(probes: ProbeSource) -> Iterator[Metric]:
    """Give the families of all probes."""
    statistics = sorted(probes.statistics().items())
    yield counters(
        "probe_calls",
        "Calls of a probe, over all nodes, by how they ended.",
        ("probe", "outcome"),
        [
            ((name, outcome.value), count)
            for name, counted in statistics
            for outcome, count in counted.calls.items()
        ],
    )
    yield counters(
        "probe_seconds",
        "Time that the calls of a probe took.",
        ("probe",),
        [((name,), counted.seconds) for name, counted in statistics],
    )
    yield gauge("probes_stuck", "Calls of probes that hang now.", probes.stuck_count)
