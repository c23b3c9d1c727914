"""Whether a service is up: the one place where that is judged."""

from datetime import datetime

from nodetracker.model.service import ServiceRecord


def is_service_up(service: ServiceRecord, now: datetime, service_down_time: int) -> bool:
    """Tell whether a service has been heard of lately and is not forced down.

    Args:
        now: the database's time, as `service`'s own times are; no host's clock
            takes part.
        service_down_time: seconds of silence after which a service is down.
    """
    return not service.forced_down and is_heard_of(service, now, service_down_time)


def is_heard_of(service: ServiceRecord, now: datetime, service_down_time: int) -> bool:
    """Tell whether a service's process seems to live, whatever an administrator says of it."""
    heard = service.last_seen_up or service.created_at
    return (now - heard).total_seconds() <= service_down_time
