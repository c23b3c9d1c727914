"""Render how long a machine has been up, as the program ``uptime`` does."""

from datetime import datetime

from nodetracker.model.service import LoadAverage

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def render_uptime(booted_at: datetime, now: datetime, load_average: LoadAverage | None) -> str:
    """Return a line that Nova's clients split at ``up``, ``users`` and ``load average``.

    Args:
        booted_at, now: by the same clock; a time before the boot counts as the boot.
        load_average: None = unknown.

    Source: procps, of which Nova returns the output on its hosts.

    >>> from datetime import UTC
    >>> booted, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 4, 4, 18, 25, 9, tzinfo=UTC)
    >>> render_uptime(booted, now, (0.2, 0.12, 0.14))
    '18:25:09 up 93 days, 18:25,  0 users,  load average: 0.20, 0.12, 0.14'
    """
    seconds = max(0, int((now - booted_at).total_seconds()))
    days, hours = seconds // _DAY, seconds % _DAY // _HOUR
    minutes = seconds % _HOUR // _MINUTE
    parts = []
    if days:
        parts.append(f"{days} day{'s' if days > 1 else ''}")
    parts.append(f"{hours:2d}:{minutes:02d}" if hours else f"{minutes} min")
    load = "unknown"
    if load_average is not None:
        load = ", ".join(f"{value:.2f}" for value in load_average)
    return f"{now:%H:%M:%S} up {', '.join(parts)},  0 users,  load average: {load}"
