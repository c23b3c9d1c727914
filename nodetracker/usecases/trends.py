"""Read how full the fleet was in its last week, and when it is full."""

from typing import TYPE_CHECKING

from nodetracker.model.errors import SchemaError
from nodetracker.model.trend import Resolution, TrendQuery
from nodetracker.views.trends import WEEK_HOURS, Trend, forecast_query, list_forecasts

if TYPE_CHECKING:  # imports more than the overview needs
    from nodetracker.ports import FleetReader


def read_fleet_trend(store: "FleetReader") -> Trend:
    """Return the fleet's last week and forecasts, by two statements; nothing of an older schema."""
    try:
        hours = store.read_trend(TrendQuery(resolution=Resolution.HOUR, limit=WEEK_HOURS))
        days = store.read_trend(forecast_query())
    except SchemaError:  # the rest of the overview needs no newer one
        return Trend()
    return Trend(tuple(hours), tuple(list_forecasts(days)))
