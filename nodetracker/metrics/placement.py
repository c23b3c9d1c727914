"""Render the metrics of the reporter to placement."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from nodetracker.metrics.families import counters, gauge
from nodetracker.model.health import PlacementStatus


def render_placement(status: PlacementStatus) -> Iterator[Metric]:
    """Yield the families of the reporter."""
    yield gauge("placement_up", "1 while placement is available.", status.error is None)
    yield counters(
        "placement_requests",
        "Requests to placement by method and outcome.",
        ("method", "outcome"),
        sorted(status.requests.items()),
    )
    yield gauge(
        "placement_waiting_nodes",
        "Nodes with changes that placement does not have yet.",
        status.waiting_nodes,
    )
    yield gauge(
        "placement_report_age_seconds",
        "Age of the oldest change that placement does not have yet; 0 without any.",
        status.report_age_seconds,
    )
    yield gauge(
        "placement_refused", "Consumers whose allocations placement refused.", status.refused
    )
    yield gauge(
        "placement_foreign_consumers",
        "Consumers of other programs that have allocations on the nodes.",
        status.foreign,
    )
    yield gauge(
        "placement_leaked_consumers",
        "Consumers of nodetracker that have allocations and that the ledger does not know.",
        status.leaked,
    )
