"""``/v1/tolerance``."""

from datetime import datetime

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import SHORT_TEXT, answer, nullable, parameters
from nodetracker.model.serializer import pick
from nodetracker.model.tolerance import Verdict
from nodetracker.views.tolerance import render_tolerance, summarize_tolerance

QUERY = parameters(host=SHORT_TEXT)

_PLAN = answer(
    guests=(
        [answer(workload_uuid=str, to_host=str, to_nodename=str)],
        "each with the node that would take it",
    ),
    lost=(
        [answer(workload_uuid=str, workload_name=str, reason=str)],
        "those without a place, and why",
    ),
)

TOLERANCE = answer(
    verdict=(
        {"type": ["string", "null"], "enum": [*(found.value for found in Verdict), None]},
        "of the loss of any one host; null: not found out yet",
    ),
    text=(str, "the same in a sentence"),
    checked_at=(datetime | None, "when the answers of all hosts were last known to hold"),
    is_stale=(bool, "that is more than two [scheduler] tolerance_interval ago"),
    hosts=(
        [
            answer(
                host=str,
                verdict=Verdict,
                lost=(str, "the guests without a place in words, or empty"),
                text=(str, "what becomes of its guests if it fails, in words"),
                computed_at=(datetime, "when the plan was made"),
                checked_at=(datetime, "when it was last known to hold"),
                plan=nullable(_PLAN, "null unless the query names the host"),
            )
        ],
        "those that are up",
    ),
)


def show_tolerance(call: Call) -> Answer:
    """Show which losses of one host the fleet survives, as the services have found out.

    With ``host``, of that host alone, with the plan for its guests.
    """
    host = call.query.get("host")
    stored = call.store.list_tolerances(host, with_plans=host is not None)
    found = summarize_tolerance(stored, call.store.now(), host)
    shown = pick(found, "verdict", "text", "checked_at", "is_stale")
    return Answer({**shown, "hosts": [render_tolerance(item) for item in stored]})
