"""``/v1/trends``, and those of nodes: amounts by the hour and by the day, and forecasts."""

from datetime import datetime, timedelta

from nodetracker.accounting.schemas import UUID, list_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import answer, choice, nullable, parameters
from nodetracker.api.handlers.own.history import PERIOD, read_time
from nodetracker.api.lookup import get_liveness, get_node_page
from nodetracker.model.amounts import MEMORY
from nodetracker.model.trend import TREND_RESOURCES, Step, TrendQuery
from nodetracker.views.services import state_of
from nodetracker.views.trends import (
    DAY_HOURS,
    NAMES,
    forecast_query,
    render_days,
    render_forecasts,
    render_sample,
)

QUERY = parameters(step=choice([found.value for found in Step]), **PERIOD)

_AMOUNTS = answer(
    physical=(float, "what the machines have"),
    capacity=(float, "what may be allocated, reserved amounts included"),
    promised=(float, "what is reserved or used by claims and guests"),
    measured=(float | None, "what the machines use, where that is known"),
)
_FORECAST = answer(
    full_at=(datetime, "about when all that may be allocated is"),
    full_at_from=(datetime, "the earliest time at which all that may be allocated is"),
    full_at_to=(datetime | None, "the latest one; null = later than the days can show"),
    text=(str, "the same in words"),
)

TRENDS = answer(
    step=Step,
    samples=(
        [
            answer(
                at=(datetime, "the start of the hour or day"),
                nodes=(int, "how many there were"),
                **dict.fromkeys(NAMES.values(), _AMOUNTS),
            )
        ],
        "oldest first; some may be missing",
    ),
    forecast=answer(
        **dict.fromkeys(
            NAMES.values(),
            nullable(_FORECAST, "null: there is none from these days, or the node is not up"),
        )
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
    page = get_node_page(call)
    (found,) = page.items
    is_up = state_of(found.service, get_liveness(call, page.now)) == "up"
    return _show(call, found.node.id, has_forecast=is_up)


def _show(call: Call, node_id: int | None = None, has_forecast: bool = True) -> Answer:
    """Return the trend, with a forecast unless the node is not up."""
    step = Step(call.query.get("step", Step.HOUR))
    query = TrendQuery(
        step=step,
        node_id=node_id,
        since=read_time(call, "since"),
        until=read_time(call, "until"),
    )
    samples = call.store.read_trend(query)
    days = call.store.read_trend(forecast_query(node_id)) if has_forecast else []
    return Answer(
        {
            "step": step,
            "samples": [render_sample(sample) for sample in samples],
            "forecast": render_forecasts(days),
        }
    )
