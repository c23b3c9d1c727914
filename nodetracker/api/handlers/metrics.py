"""``/metrics``."""

from nodetracker.api.call import Answer, Call
from nodetracker.metrics.fleet import CONTENT_TYPE, render_page
from nodetracker.model.errors import BusyError, StoreError


def show_metrics(call: Call) -> Answer:
    """Show this service's metrics for Prometheus, and the fleet's from the shared overview.

    Without the database only its own.
    """
    backend, settings = call.backend, call.backend.settings
    max_nodes = settings.overview_max_nodes if settings.metrics_per_node else 0
    pages = []
    try:
        overview = backend.fleet.get(call.user_id).overview
        pages.append(render_page(overview, max_nodes))
    except BusyError:
        pass
    except StoreError as error:
        backend.counters.store_errors.add(error)
    pages.append(backend.metrics.render_page())
    return Answer(page=b"".join(pages), headers={"Content-Type": CONTENT_TYPE})
