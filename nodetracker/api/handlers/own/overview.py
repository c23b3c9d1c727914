"""``/v1/overview``, ``/metrics`` and ``/health``: the fleet and this service as a whole."""

from datetime import datetime

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import SHORT_TEXT, answer, answer_with, parameters
from nodetracker.metrics.fleet import CONTENT_TYPE, render_page
from nodetracker.model.amounts import PARTS
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import BusyError, StoreError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.health import HealthState
from nodetracker.model.service import ServiceRecord
from nodetracker.views.fleet_health import MOST_HOSTS, HealthLevel
from nodetracker.views.overview import Severity
from nodetracker.views.services import DISABLING, FORCING, MAINTENANCE, STATES, STATUSES, Freshness

USE = answer(
    total=float,
    reserved=float,
    claimed=float,
    unclaimed=float,
    free=(float, "negative when more than the total is used"),
    limit=(float, "what may be used with the allocation ratio, reserved amounts included"),
)
_AMOUNTS = answer(**dict.fromkeys(PARTS, USE))
_GUESTS = answer(**{kind.value: int for kind in WorkloadKind})

_NODE = answer(
    uuid=str,
    host=str,
    nodename=str,
    state={"type": "string", "enum": list(STATES)},
    status={"type": "string", "enum": list(STATUSES)},
    maintenance=bool,
    freshness=Freshness,
    amounts=_AMOUNTS,
    guests=_GUESTS,
    warnings=(int, "unresolved warnings about the node or its whole host"),
    severity=(
        {"type": "integer", "enum": list(map(int, Severity))},
        "0 fine, 1 disabled or in maintenance, 2 warned of, 3 not read, 4 lost",
    ),
)

_FINDING = answer(
    level=HealthLevel,
    text=str,
    path=(str, "of the view of the page that lists what it is about, or empty"),
    filters=({str: str}, "by which that view lists its nodes"),
)

_CAUSE = answer(
    level=HealthLevel,
    text=(str, "whom it affects, since when, why, and how many guests are there"),
    hosts=([str], f"in natural order, at most {MOST_HOSTS}"),
    guests=(int, "on all that it affects"),
    since=(datetime | None, "of the first of them, where that is known"),
    path=(str, "of the view of the page that shows whom it affects, or empty"),
    filters=({str: str}, "by which that view lists them"),
)

_DECISION = answer_with(ServiceRecord, ("forced_down", *FORCING, *MAINTENANCE, *DISABLING))

OVERVIEW = answer(
    now=datetime,
    health=answer(
        level=HealthLevel,
        text=str,
        problems=([_FINDING], "the worst first"),
        notes=(
            [_FINDING],
            "nodes out of use, and which losses of hosts the fleet survives",
        ),
        causes=([_CAUSE], "the same by cause: the worst first, then those with the most guests"),
    ),
    summary=(str, "what the fleet has, in words"),
    totals=_AMOUNTS,
    left=({str: str}, "what can be claimed now of each resource class, and what is on other hosts"),
    measured=(
        {
            str: answer(
                percent=(int, "of the physical amount"),
                nodes=(int, "that measure it and were read recently"),
                text=(str, "the same in words"),
            )
        },
        "what the machines use, of each resource class that any of them measures",
    ),
    states=answer(**dict.fromkeys(STATES, int)),
    statuses=answer(**dict.fromkeys(STATUSES, int)),
    freshness=answer(**{kind.value: int for kind in Freshness}),
    claims=answer(**{state.value: int for state in ClaimState}),
    guests=_GUESTS,
    warnings=({str: int}, "unresolved warnings by kind, of nodes and of whole hosts"),
    silenced_warnings=(int, "unresolved warnings that are silenced, which are not among those"),
    base=(str | None, "the request's, if nodes are only those that have changed since; else null"),
    nodes=[_NODE],
    empty_hosts=([_NODE], "hosts without nodes; their uuid and nodename are empty"),
    down_since=({str: str}, "since when each host is down or unreachable, where that is known"),
    decisions=(
        {str: _DECISION},
        "why hosts are disabled, in maintenance or forced down, since when and by whom",
    ),
    truncated=(bool, "there are more nodes than [api] overview_max_nodes"),
)

QUERY = parameters(base=SHORT_TEXT)


def show_overview(call: Call) -> Answer:
    """Show totals and states of the whole fleet, and a line for each node.

    With the entity tag of an earlier answer as ``base``, for each that has changed since, as
    long as the tag is known and the fleet has the same nodes.
    """
    kept = call.backend.fleet.get(call.user_id)
    base = call.query.get("base")
    return Answer(encoded=kept.body if base is None else kept.list_changes(base))


def show_metrics(call: Call) -> Answer:
    """Show this service's metrics for Prometheus, and the fleet's from the shared overview.

    Without the database only its own.
    """
    backend, settings = call.backend, call.backend.settings
    max_nodes = settings.overview_max_nodes if settings.metrics_per_node else 0
    pages = []
    try:
        overview = backend.fleet.get(call.user_id).overview
        pages.append(render_page(overview, max_nodes))
    except BusyError:
        pass
    except StoreError as error:
        backend.counters.store_errors.add(error)
    pages.append(backend.metrics.render_page())
    return Answer(page=b"".join(pages), headers={"Content-Type": CONTENT_TYPE})


_RULE = "nodetracker:health:show"


def show_health(call: Call) -> Answer:
    """Show whether this service works, from what it knows already; problems for who may read."""
    health = call.backend.read_health()
    body = health.as_json(has_output=call.is_allowed(_RULE))
    status = 503 if health.state is HealthState.FAIL else 200
    return Answer(body, status, {"Cache-Control": "no-store"})
