"""``/v1/hosts``."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    PAGE,
    PART_OF_NAME,
    WITH_COUNT,
    answer,
    answer_of,
    answered_page,
    choice,
    parameters,
)
from nodetracker.api.handlers.own.services import ADMIN_VERSION, STATE
from nodetracker.api.lookup import answer_page, get_liveness
from nodetracker.model.listing import HostSum, LivenessFilter, ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.ports import POWER_ACTIONS
from nodetracker.usecases.reads import read_host_usage, require_agent
from nodetracker.views.nodes import render_node_state, render_since
from nodetracker.views.services import STATES, STATUSES, render_host
from nodetracker.views.usages import HostUsage

_ORDERS = {"id": "id", "host_name": "host", "fullness": "fullness"}

LIST_QUERY = parameters(
    name_part=PART_OF_NAME,
    state=choice(STATES),
    status=choice(STATUSES),
    maintenance=bool,
    spare=bool,
    has_nodes=bool,
    sort_key=choice(_ORDERS),
    sort_dir=choice(("asc", "desc")),
    **WITH_COUNT,
    **PAGE,
)

HOSTS = answered_page(
    "hosts",
    answer(
        uuid=str,
        host_name=str,
        service=str,
        zone=str,
        down_since=(datetime | None, "null: it is up, or unknown"),
        **STATE,
        since=(
            datetime | None,
            "since when it is down, or else forced down, in maintenance or disabled; null: none of "
            "them, or unknown",
        ),
        nodes=int,
        guests=(int, "instances and containers on its nodes"),
        fullness=(
            float | None,
            "allocated share of the fullest resource of its nodes, above 1 if overcommitted; null: "
            "it has no node",
        ),
        admin_version=ADMIN_VERSION,
    ),
    is_counted=True,
)

HOST = answer(host=str, resources=[answer_of(HostUsage)])

PURGED = answer(host=str, deleted_nodes=int)

ACTION = parameters("action", action=choice(POWER_ACTIONS))

ACTION_STARTED = answer(host=str, action=choice(POWER_ACTIONS))


def list_hosts(call: Call) -> Answer:
    """List hosts, with the uuids of their agents' services."""
    state, status = call.query.get("state"), call.query.get("status")
    query = ServiceQuery(
        after=call.marker,
        limit=call.limit,
        binary=COMPUTE_BINARY,
        name_part=call.query.get("name_part"),
        is_disabled=None if status is None else status == "disabled",
        is_in_maintenance=call.query.get("maintenance"),
        is_spare=call.query.get("spare"),
        liveness=None if state is None else LivenessFilter(state == "up", call.service_down_time),
        has_nodes=call.query.get("has_nodes"),
        order=_ORDERS[call.query.get("sort_key", "id")],
        is_descending=call.query.get("sort_dir") == "desc",
        with_count=call.query.get("with_count", False),
    )
    page = call.store.list_service_page(query)
    liveness = get_liveness(call, page.now)
    sums = call.store.sum_hosts([item.host for item in page.items])
    shown = [_render_line(item, liveness, sums.get(item.host)) for item in page.items]
    if state is not None:  # the database does not distinguish down from unreachable
        shown = [item for item in shown if item["state"] == state]
    return answer_page(call, "hosts", shown, page.next and page.items[-1].uuid, page.count)


def _render_line(item: ServiceRecord, liveness: Liveness, found: HostSum | None) -> dict[str, Any]:
    return {
        "uuid": item.uuid,
        **render_host(item),
        **render_node_state(item, liveness),
        **render_since(item, liveness),
        "nodes": 0 if found is None else found.nodes,
        "guests": 0 if found is None else found.guests,
        "fullness": None if found is None else found.fullness,
        "admin_version": item.admin_version,
    }


def show_host(call: Call) -> Answer:
    """Show a host's resources and their usage, in total and by project."""
    host = call.params["host"]
    lines = read_host_usage(call.store, host)
    return Answer({"host": host, "resources": [asdict(line) for line in lines]})


def act_on_host(call: Call) -> Answer:
    """Reboot, shut down or start up a host through its agent."""
    host, action = call.params["host"], call.body["action"]
    require_agent(call.store, host)
    with call.backend.agents.calling(host) as agent:
        agent.host_power_action(action)
    return Answer({"host": host, "action": action}, status=202)


def purge_host(call: Call) -> Answer:
    """Delete all nodes of a host that is down, with the claims on them."""
    host = call.params["host"]
    deleted = call.store.purge_host(host, call.service_down_time)
    return Answer({"host": host, "deleted_nodes": deleted})
