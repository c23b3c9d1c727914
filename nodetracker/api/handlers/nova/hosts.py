"""``os-hosts``: hosts up to microversion 2.42."""

from dataclasses import asdict

import falcon

from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call, Handler
from nodetracker.api.fields import parameters
from nodetracker.model.errors import NotFoundError, RpcUnavailableError
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from nodetracker.usecases.reads import read_host_usage, read_items
from nodetracker.views.services import zone_of

LIST_QUERY = parameters(zone=str)

_SWITCH: Schema = {
    "description": "enable or disable",
    "type": "string",
    "enum": [form(word) for word in ("enable", "disable") for form in (str, str.title, str.upper)],
}

UPDATE = parameters(status=_SWITCH, maintenance_mode=_SWITCH) | {
    "description": "an object with status, maintenance_mode or both",
    "minProperties": 1,
}

_SERVICES = {COMPUTE_BINARY: "compute", CONDUCTOR_BINARY: "conductor"}
"""nodetracker's binaries -> Nova's names of the services; it lists no API services either."""


def list_hosts(call: Call) -> Answer:
    """List enabled services as hosts; a blank zone means all zones."""
    zone = call.query.get("zone") or None
    hosts = [
        {
            "host_name": service.host,
            "service": _SERVICES[service.binary],
            "zone": zone_of(service.binary),
        }
        for service in read_items(call.store.list_service_page, ServiceQuery(is_disabled=False))
        if service.binary in _SERVICES and zone in (None, zone_of(service.binary))
    ]
    return Answer({"hosts": hosts})


def show_host(call: Call) -> Answer:
    """Show a host's resources and their usage, in total and by project."""
    host = _find_host(call)
    lines = read_host_usage(call.store, host)
    return Answer({"host": [{"resource": asdict(line)} for line in lines]})


def update_host(call: Call) -> Answer:
    """Enable or disable a host, or set its maintenance mode."""
    wanted = {name: value.lower() == "enable" for name, value in call.body.items()}
    status, maintenance = wanted.get("status"), wanted.get("maintenance_mode")
    change = ServiceChange(
        disabled=None if status is None else not status,
        maintenance=maintenance,
        disabled_by=call.user_name,
    )
    shown = {"host": call.store.set_service(call.params["host"], COMPUTE_BINARY, change).host}
    if status is not None:
        shown["status"] = "enabled" if status else "disabled"
    if maintenance is not None:
        shown["maintenance_mode"] = "on_maintenance" if maintenance else "off_maintenance"
    return Answer(shown)


def act_on_host(action: str) -> Handler:
    """Return the handler of one power action, which the host's agent carries out."""

    def act(call: Call) -> Answer:
        host = _find_host(call)
        try:
            with call.backend.agents.calling(host) as agent:
                agent.host_power_action(action)
        except RpcUnavailableError as error:
            raise falcon.HTTPBadRequest(
                description=f"Compute service of {host} is unavailable at this time: {error}"
            ) from error
        return Answer({"host": host, "power_action": action})

    return act


def _find_host(call: Call) -> str:
    """Return the name of the host in the path.

    Raises:
        NotFoundError: it has no agent.
    """
    host = call.params["host"]
    if not call.store.list_services(host, COMPUTE_BINARY):
        raise NotFoundError(f"Compute host {host} could not be found.")
    return host
