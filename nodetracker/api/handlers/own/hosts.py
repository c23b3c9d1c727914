"""``/v1/hosts``."""

from dataclasses import asdict

from nodetracker.accounting.reports.nodes import render_node_state
from nodetracker.accounting.reports.services import render_host
from nodetracker.api.call import Answer, Call
from nodetracker.api.liveness import find_outage
from nodetracker.api.paging import next_links, page_of
from nodetracker.fleet.reads import read_host_usage
from nodetracker.model.errors import NotFoundError
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY


def list_hosts(call: Call) -> Answer:
    """List hosts, with the uuids of their agents' services."""
    wanted, status = page_of(call), call.query.get("status")
    query = ServiceQuery(
        after=wanted.marker,
        limit=wanted.limit,
        binary=COMPUTE_BINARY,
        is_disabled=None if status is None else status == "disabled",
    )
    page = call.store.list_service_page(query)
    outage = find_outage(call, page.now)
    down_time = call.backend.settings.service_down_time
    shown = [
        {
            "uuid": service.uuid,
            **render_host(service),
            **render_node_state(service, page.now, down_time, outage),
        }
        for service in page.items
    ]
    last = None if page.next is None else page.items[-1].uuid
    return Answer({"hosts": shown, "links": next_links(call, last)})


def show_host(call: Call) -> Answer:
    """Show a host's resources and their usage, in total and by project."""
    host = call.params["host"]
    lines = read_host_usage(call.store, host)
    return Answer({"host": host, "resources": [asdict(line) for line in lines]})


def act_on_host(call: Call) -> Answer:
    """Reboot, shut down or start up a host through its agent."""
    host, action = call.params["host"], call.body["action"]
    if not call.store.list_services(host, COMPUTE_BINARY):
        raise NotFoundError(f"no such host: {host}")
    with call.backend.agents.calling(host) as agent:
        agent.host_power_action(action)
    return Answer({"host": host, "action": action}, status=202)
