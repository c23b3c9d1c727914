"""Translate names and times between Nova and nodetracker."""

from datetime import UTC, datetime

from nodetracker.model.service import API_BINARY, COMPUTE_BINARY, CONDUCTOR_BINARY

NOVA_BINARIES = {
    COMPUTE_BINARY: "nova-compute",
    CONDUCTOR_BINARY: "nova-conductor",
    API_BINARY: "nova-api",
}
"""nodetracker's binaries -> the names that Nova's clients know."""

OWN_BINARIES = {nova: own for own, nova in NOVA_BINARIES.items()}


def render_nova_time(moment: datetime) -> str:
    """Return a time as Nova writes it: UTC without an offset, with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
