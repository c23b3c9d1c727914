"""``/v1/hosts``."""

from dataclasses import asdict
from datetime import datetime

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import PAGE, answer, answer_of, answered_page, choice, parameters
from nodetracker.api.handlers.own.services import STATE
from nodetracker.api.lookup import answer_page, get_liveness
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.text import render_time
from nodetracker.ports import POWER_ACTIONS
from nodetracker.usecases.reads import read_host_usage, require_agent
from nodetracker.views.nodes import render_node_state
from nodetracker.views.services import STATUSES, find_down_since, render_host
from nodetracker.views.usages import HostUsage

LIST_QUERY = parameters(status=choice(STATUSES), **PAGE)

HOSTS = answered_page(
    "hosts",
    answer(
        uuid=str,
        host_name=str,
        service=str,
        zone=str,
        down_since=(datetime | None, "null: it is up, or unknown"),
        **STATE,
    ),
)

HOST = answer(host=str, resources=[answer_of(HostUsage)])

PURGED = answer(host=str, deleted_nodes=int)

ACTION = parameters("action", action=choice(POWER_ACTIONS))

ACTION_STARTED = answer(host=str, action=choice(POWER_ACTIONS))


def list_hosts(call: Call) -> Answer:
    """List hosts, with the uuids of their agents' services."""
    status = call.query.get("status")
    query = ServiceQuery(
        after=call.marker,
        limit=call.limit,
        binary=COMPUTE_BINARY,
        is_disabled=None if status is None else status == "disabled",
    )
    page = call.store.list_service_page(query)
    liveness = get_liveness(call, page.now)
    shown = [
        {
            "uuid": item.uuid,
            **render_host(item),
            **render_node_state(item, liveness),
            "down_since": render_time(find_down_since(item, liveness)),
        }
        for item in page.items
    ]
    return answer_page(call, "hosts", shown, page.next and page.items[-1].uuid)


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
