"""Count durations in the buckets of a histogram."""

import bisect
import itertools
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from nodetracker.metrics.families import PREFIX


class Durations:
    """A histogram of durations since the start. Not thread-safe.

    Args:
        buckets: upper bounds in seconds, ascending.
    """

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect.bisect_left(self._buckets, seconds)] += 1
        self._seconds += seconds

    def render(self, name: str, text: str) -> Metric:
        """Return the histogram."""
        family = HistogramMetricFamily(PREFIX + name, text)
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        cumulated = itertools.accumulate(self._counts)
        family.add_metric((), list(zip(bounds, cumulated, strict=True)), self._seconds)
        return family
