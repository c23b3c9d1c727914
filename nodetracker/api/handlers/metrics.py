"""``/metrics``."""

from nodetracker.api.call import Answer, Call
from nodetracker.metrics.fleet import CONTENT_TYPE, render_page


def show_metrics(call: Call) -> Answer:
    """Show the fleet's metrics for Prometheus, from the overview that all callers share."""
    overview = call.backend.fleet.get().overview
    page = render_page(overview, call.backend.settings.metrics_per_node)
    return Answer(page=page, headers={"Content-Type": CONTENT_TYPE})
