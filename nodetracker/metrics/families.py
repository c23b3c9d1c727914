"""Build metric families, and those that agents and REST services have in common.

Names have the common prefix, and unknown values no series.
"""

import bisect
import enum
import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.metrics.claim_counter import OTHER, ClaimCounts
from nodetracker.model.errors import ConflictError, SchemaError, StoreError, StoreUnavailableError

PREFIX = "nodetracker_"

Values = float | None | Mapping[Any, float | None]
"""The value of a family without labels, or label value (a tuple of several) -> value.

None omits the series.
"""

Row = tuple[str, Callable[[Any], Values], str]
"""Name of a family, how its values are read from an object, and its help text."""


def family(name: str, text: str, values: Values) -> Metric:
    """Build a counter if the name ends with ``_total``, else a gauge.

    Args:
        name: as exported, without the prefix and with its labels in braces, e.g.
            ``audits_total{outcome}``.
    """
    name, _, labels = name.rstrip("}").partition("{")
    kind: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    built = kind(PREFIX + name, text, labels=labels.split(",") if labels else ())
    for key, value in (values if isinstance(values, Mapping) else {(): values}).items():
        if value is not None:
            built.add_metric((key,) if isinstance(key, str) else key, value)
    return cast("Metric", built)


def families(rows: Iterable[Row], source: object) -> Iterator[Metric]:
    """Build the families of a table from one object."""
    for name, read, text in rows:
        yield family(name, text, read(source))


def info(name: str, text: str, labels: Mapping[str, str]) -> Metric:
    """Build an info gauge: always 1, with its data in labels; ``_info`` is appended to its name."""
    return family(f"{name}_info{{{','.join(labels)}}}", text, {tuple(labels.values()): 1})


def render_labels(labels: Mapping[str, str]) -> str:
    r"""Return labels in the text format, in the order that the library gives them.

    >>> render_labels({"nodename": 'n"1', "host": "a"})
    'host="a",nodename="n\\"1"'
    """
    return ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(labels.items()))


def render_gauge(name: str, text: str, series: Iterable[tuple[str, float]]) -> str:
    """Return a gauge in the text format.

    The library takes 20 µs for each series (seen with 0.22), too long for those of many nodes.

    Args:
        series: labels, from `render_labels`, and value.
    """
    full_name, found = PREFIX + name, list(series)
    values = map(floatToGoString, (value for _, value in found))
    lines = [
        f"{full_name}{{{labels}}} {value}\n"
        for (labels, _), value in zip(found, values, strict=True)
    ]
    return f"# HELP {full_name} {text}\n# TYPE {full_name} gauge\n{''.join(lines)}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Durations:
    """A histogram of durations since the start. Not thread-safe."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(self._buckets, seconds)] += 1
        self._seconds += seconds

    def render(self, name: str, text: str) -> Metric:
        built = HistogramMetricFamily(PREFIX + name, text)
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        cumulated = itertools.accumulate(self._counts)
        built.add_metric((), list(zip(bounds, cumulated, strict=True)), self._seconds)
        return built


class StoreErrorKind(enum.StrEnum):
    """Why the database could not be used."""

    UNAVAILABLE = "unavailable"
    SCHEMA = "schema"
    CONFLICT = "conflict"
    REFUSED = "refused"  # any other error

    @classmethod
    def of(cls, error: StoreError) -> "StoreErrorKind":
        match error:
            case StoreUnavailableError():
                return cls.UNAVAILABLE
            case SchemaError():
                return cls.SCHEMA
            case ConflictError():
                return cls.CONFLICT
        return cls.REFUSED


def render_store_errors(name: str, text: str, counts: Mapping[StoreErrorKind, int]) -> Metric:
    return family(f"{name}_total{{kind}}", text, {k: counts.get(k, 0) for k in StoreErrorKind})


class ProcessMetrics(Collector):
    """Metrics of one process, in a registry of its own, so that a process may have several.

    Families are rebuilt from values in memory: a scrape queries neither the
    database nor a driver, and removed objects have no series.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def describe(self) -> list[Metric]:
        """Return no families, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families except those of the process itself."""
        yield info(
            "build",
            "Versions of nodetracker and Python.",
            {"version": self._version, "python": platform.python_version()},
        )


def render_claims(counts: ClaimCounts, prefix: str = "") -> Iterator[Metric]:
    """Yield the families."""
    outcomes = {"granted": counts.granted, "refused": counts.refused}
    yield family(f"{prefix}claim_requests_total{{outcome}}", "Claim requests by outcome.", outcomes)
    yield family(
        f"{prefix}claim_refusals_total{{check}}",
        "Refused claim requests by failed check; one that fails several is counted by each.",
        {name: counts.checks.get(name, 0) for name in (*map(str, AdmissionCheck), OTHER)},
    )
