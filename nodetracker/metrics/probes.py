"""Render the metrics of probes: outcomes, durations and hung calls."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import counters, gauge
from nodetracker.model.fact import ProbeStatistics


class ProbeSource(Protocol):
    """The runner of the probes."""

    def statistics(self) -> Mapping[str, ProbeStatistics]:
        """Return the statistics by probe name."""

    @property
    def stuck_count(self) -> int:
        """Number of calls that are hung now."""


def render_probes(probes: ProbeSource) -> Iterator[Metric]:
    """Yield the families of all probes."""
    statistics = sorted(probes.statistics().items())
    yield counters(
        "probe_calls",
        "Calls of a probe by outcome, over all nodes.",
        ("probe", "outcome"),
        [
            ((name, outcome.value), count)
            for name, counted in statistics
            for outcome, count in counted.calls.items()
        ],
    )
    yield counters(
        "probe_seconds",
        "Total duration of the calls of a probe.",
        ("probe",),
        [((name,), counted.seconds) for name, counted in statistics],
    )
    yield gauge("probes_stuck", "Probe calls that are hung now.", probes.stuck_count)
