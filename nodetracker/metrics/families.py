"""Builds metric families by the project's rules: one prefix, a help text, no series for unknown."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

PREFIX = "nodetracker_"

Samples = Iterable[tuple[tuple[str, ...], float | None]]
"""Label values and the value of each series; None leaves a series out."""


def gauge(name: str, text: str, value: float | None) -> Metric:
    """Build a gauge of one series, or of none while its value is unknown."""
    return gauges(name, text, (), [((), value)])


def gauges(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    """Build a gauge of a series for each combination of labels."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    _add(family, samples)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """Build a counter of one series; ``_total`` is added to its name."""
    return counters(name, text, (), [((), value)])


def counters(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    """Build a counter of a series for each combination of labels."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    _add(family, samples)
    return family


def info(name: str, text: str, labels: Mapping[str, str]) -> Metric:
    """Build what is always 1 and tells something by its labels; ``_info`` is added to its name."""
    return gauges(f"{name}_info", text, tuple(labels), [(tuple(labels.values()), 1)])


def _add(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> None:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
