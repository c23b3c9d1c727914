"""``/v1/plans``."""

from nodetracker.accounting.schemas import list_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import EXPLANATIONS, SHORT_TEXT, answer, choice, parameters
from nodetracker.model.claim import MigrationType
from nodetracker.model.guest import WorkloadKind
from nodetracker.views.plans import render_plan

MAX_GUESTS = 2000
"""Of one plan; the command line has no limit."""

_MAX_HOSTS = 1000

_TYPES = (MigrationType.MIGRATION.value, MigrationType.EVACUATION.value)

REQUEST = parameters(
    "hosts",
    hosts=list_of(
        SHORT_TEXT,
        f"a list of 1 to {_MAX_HOSTS} hosts that are to be empty",
        minItems=1,
        maxItems=_MAX_HOSTS,
    ),
    type=choice(_TYPES)
    | {"description": f"one of {', '.join(_TYPES)}, which alone uses spare hosts"},
)

_GUEST = answer(
    workload_uuid=str,
    workload_name=str,
    kind=WorkloadKind,
    claim_uuid=(str | None, "null: it has no claim, or several"),
    from_host=str,
    from_nodename=str,
    is_derived=(bool, "what it requires is derived from what it holds"),
    to_host=(str | None, "null: no node was found, or nothing is planned for it"),
    to_nodename=str | None,
    reason=(str, "why it has no node, or empty"),
    nearest=([answer(host=str, nodename=str, explanations=EXPLANATIONS)], "that refuse it"),
)

PLAN = answer(
    hosts=[str],
    fits=(bool, "every guest has a node, and nothing is left out"),
    is_certain=(bool, "without a node for every guest: that there is no way, not only none found"),
    text=(str, "how many guests have a node, in a sentence"),
    guests=[_GUEST],
)


def create_plan(call: Call) -> Answer:
    """Plan where all guests of hosts would fit elsewhere; nothing is claimed."""
    moves = MigrationType(call.body.get("type", MigrationType.MIGRATION))
    plan = call.backend.planner.plan(call.body["hosts"], MAX_GUESTS, moves)
    return Answer(render_plan(plan))
