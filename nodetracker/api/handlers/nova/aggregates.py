"""``os-aggregates``."""

from nodetracker.api.call import Answer, Call


def list_aggregates(call: Call) -> Answer:
    """List host aggregates, of which there are none: clients ask before they show a hypervisor."""
    return Answer({"aggregates": []})
