"""Evaluate the state of services, for the handlers of all families."""

from datetime import datetime

from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.api.call import Call
from nodetracker.model.service import CONDUCTOR_BINARY


def find_outage(call: Call, now: datetime) -> datetime | None:
    """Return since when the message broker carries no messages, None if it does; one statement.

    Args:
        now: the database's time.
    """
    conductors = call.store.list_services(binary=CONDUCTOR_BINARY)
    return find_broker_outage(conductors, now, call.backend.settings.service_down_time)
