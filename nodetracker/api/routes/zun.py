"""Routes in the form of Zun's API."""

from nodetracker.api.handlers.zun import hosts, versions
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import hosts as hosts_schemas

ZUN: tuple[Route, ...] = (
    route("/container", GET=Operation(versions.list_versions, rule=None)),
    route("/container/v1", GET=Operation(versions.show_version, rule=None)),
    route(
        "/container/v1/hosts",
        GET=Operation(hosts.list_hosts, "host:get_all", query=hosts_schemas.ZUN_LIST_QUERY),
    ),
    route("/container/v1/hosts/{id}", GET=Operation(hosts.show_host, "host:get")),
)
