"""``/v1/overview``."""

from nodetracker.api.call import Answer, Call


def show_overview(call: Call) -> Answer:
    """Show totals and states of the whole fleet, and a line for each node."""
    return Answer(encoded=call.backend.fleet.get(call.user_id).body)
