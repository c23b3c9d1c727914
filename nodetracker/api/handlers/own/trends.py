"""``/v1/trends``, and those of nodes: amounts by the hour and by the day, and forecasts."""

from datetime import datetime, timedelta

from nodetracker.accounting.schemas import UUID, list_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import answer, answer_of, choice, parameters
from nodetracker.api.handlers.own.history import PERIOD, read_time
from nodetracker.api.lookup import get_node
from nodetracker.model.amounts import MEMORY
from nodetracker.model.serializer import encode
from nodetracker.model.trend import TREND_RESOURCES, Resolution, TrendQuery
from nodetracker.views.trends import (
    DAY_HOURS,
    ForecastLine,
    forecast_query,
    list_forecasts,
    render_days,
    render_trend,
)

QUERY = parameters(resolution=choice([found.value for found in Resolution]), **PERIOD)

_COLUMNS = answer(
    total=([float], "the physical amounts"),
    limit=([float], "what may be allocated, reserved amounts included"),
    allocated=([float], "what is reserved or used by claims and guests"),
    measured=([float | None], "what the machines use; null = unknown"),
)

TRENDS = answer(
    resolution=Resolution,
    times=([datetime], "the starts of hours or days, oldest first; some may be missing"),
    amounts=answer(**dict.fromkeys(TREND_RESOURCES, _COLUMNS)),
    forecasts=(
        [
            answer_of(
                ForecastLine,
                days=(float, "until all that may be allocated is"),
                earliest=(float, "of the range, in days"),
                latest=(float | None, "of the range; null = later than its days can show"),
                text=(str, "the same in words"),
            )
        ],
        "of the resources that grow, the next one to be full first",
    ),
)


MAX_NODES = 100
DAY_QUERY = parameters(
    "node",
    node=list_of(UUID, f"uuids of nodes, at most {MAX_NODES}; may be repeated", maxItems=MAX_NODES),
    resource=choice(TREND_RESOURCES),
)

DAYS = answer(
    resource=choice(TREND_RESOURCES),
    nodes=(
        [
            answer(
                uuid=str,
                percents=(
                    [int | None],
                    "of what may be allocated, of each of 24 hours, oldest first; null = unknown",
                ),
                text=(str, "their range in words"),
            )
        ],
        "without those that do not exist or have fewer than two hours",
    ),
)


def list_days_of_nodes(call: Call) -> Answer:
    """Show what some nodes had allocated of a resource in the last 24 hours, by default memory."""
    resource = call.query.get("resource", MEMORY)
    since = call.store.now() - timedelta(hours=DAY_HOURS)
    hours = call.store.read_node_hours(call.query["node"], since)
    return Answer({"resource": resource, "nodes": list(render_days(hours, resource))})


def show_trends(call: Call) -> Answer:
    """Show what the fleet had, allocated and used: hours of 14 days, or days of two years."""
    return _show(call)


def show_trends_of_node(call: Call) -> Answer:
    """Show what a node had, allocated and used: hours of 14 days, or days of two years."""
    return _show(call, get_node(call).node.id)


def _show(call: Call, node_id: int | None = None) -> Answer:
    resolution = Resolution(call.query.get("resolution", Resolution.HOUR))
    query = TrendQuery(
        resolution=resolution,
        node_id=node_id,
        since=read_time(call, "since"),
        until=read_time(call, "until"),
    )
    body = render_trend(call.store.read_trend(query))
    forecasts = list_forecasts(call.store.read_trend(forecast_query(node_id)))
    return Answer({"resolution": resolution, **body, "forecasts": encode(forecasts)})
