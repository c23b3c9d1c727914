"""``/health``."""

from nodetracker.api.call import Answer, Call
from nodetracker.model.health import HealthState

_RULE = "nodetracker:health:show"


def show_health(call: Call) -> Answer:
    """Show whether this service works, from what it knows already; problems for who may read."""
    health = call.backend.read_health()
    body = health.as_json(has_output=call.is_allowed(_RULE))
    status = 503 if health.state is HealthState.FAIL else 200
    return Answer(body, status, {"Cache-Control": "no-store"})
