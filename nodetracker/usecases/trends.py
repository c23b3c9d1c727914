"""Read how full the fleet was last week and nodes in the last day, and when it will be full."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nodetracker.model.errors import SchemaError
from nodetracker.model.trend import Step, TrendQuery, TrendSample
from nodetracker.views.trends import DAY_HOURS, WEEK_HOURS, Trend, forecast_query, list_forecasts

if TYPE_CHECKING:  # imports more than the overview needs
    from nodetracker.ports import FleetReader


_LATE = timedelta(minutes=1)  # by which time an hour is sampled


def read_fleet_trend(store: "FleetReader") -> Trend:
    """Return the fleet's last week and forecasts, by two statements; nothing of an older schema."""
    try:
        hours = store.read_trend(TrendQuery(step=Step.HOUR, limit=WEEK_HOURS))
        days = store.read_trend(forecast_query())
    except SchemaError:  # the rest of the overview needs no newer one
        return Trend()
    return Trend(tuple(hours), tuple(list_forecasts(days)))


class NodeHours:
    """The hours of nodes in the last day, which are read once an hour for each node."""

    def __init__(self, store: "FleetReader") -> None:
        self._store = store
        self._hour: datetime | None = None
        self._known: dict[str, Sequence[TrendSample]] = {}

    def read(self, uuids: Sequence[str], now: datetime) -> Mapping[str, Sequence[TrendSample]]:
        """Return the hours of some nodes by uuid; nothing of an older schema.

        Args:
            now: by the database's clock.
        """
        hour = Step.HOUR.start_of(now - _LATE)
        if hour != self._hour:
            self._hour, self._known = hour, {}
        if wanted := [uuid for uuid in uuids if uuid not in self._known]:
            since = now - timedelta(hours=DAY_HOURS)
            try:
                found = self._store.read_node_hours(wanted, since)
            except SchemaError:  # the rest of the overview needs no newer one
                return {}
            self._known |= {uuid: found.get(uuid, ()) for uuid in wanted}
        return {uuid: self._known[uuid] for uuid in uuids}
