"""Zun's API: its versions, and ``hosts``: nodes as its clients know them, one host each."""

from dataclasses import replace
from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import CONTAINER, ZUN_BASE
from nodetracker.api.fields import PAGE, choice, parameters
from nodetracker.api.lookup import next_url
from nodetracker.model.errors import ConflictError, NotFoundError
from nodetracker.model.fleet import FleetNode, FleetQuery
from nodetracker.model.text import parse_uuid

_MEDIA_TYPE = {"base": "application/json", "type": "application/vnd.openstack.zun.v1+json"}

_SAME_NAME = {
    "cpus": "vcpus",
    "cpu_used": "cpu_used",
    "mem_total": "memory_mb",
    "mem_used": "memory_mb_used",
    "mem_available": "mem_available",
    "disk_total": "local_gb",
    "disk_used": "disk_used",
    "disk_quota_supported": "disk_quota_supported",
    "total_containers": "total_containers",
    "architecture": "architecture",
    "os_type": "os_type",
    "os": "os",
    "kernel_version": "kernel_version",
    "labels": "labels",
    "runtimes": "runtimes",
    "enable_cpu_pinning": "enable_cpu_pinning",
}
"""Key of Zun's hosts -> column of the row."""

_COLUMNS = tuple(_SAME_NAME.values())
_MAX_OF_A_NAME = 2  # enough to see that it is not unique

_SORT_KEYS = {
    "hostname": "host", "uuid": "uuid", "id": "id",
    **{
        key: _SAME_NAME[key]
        for key in (
            "mem_total", "mem_used", "cpus", "cpu_used", "disk_total", "disk_used",
            "total_containers", "architecture", "os_type", "os", "kernel_version",
        )
    },
    "created_at": "created_at",
}  # fmt: skip
"""Key of Zun's hosts -> the order of a `FleetQuery`."""

LIST_QUERY = parameters(
    **PAGE, sort_key=choice(tuple(_SORT_KEYS)), sort_dir=(choice(("asc", "desc")), "asc or desc")
)


def list_versions(call: Call) -> Answer:
    """List the versions of Zun's API."""
    version = _describe_version(call)
    return Answer(
        {
            "name": "OpenStack Zun API",
            "description": "The hosts of Zun's API, as nodetracker tracks them.",
            "versions": [version],
            "default_version": version,
        }
    )


def show_version(call: Call) -> Answer:
    """Show the version of Zun's API, with its resources."""
    base = f"{ZUN_BASE}/v1/"
    return Answer(
        {
            "id": "v1",
            "media_types": [_MEDIA_TYPE],
            "links": [{"rel": "self", "href": call.url.link(base)}],
            "hosts": [{"rel": "self", "href": call.url.link(f"{base}hosts/")}],
        }
    )


def _describe_version(call: Call) -> dict[str, Any]:
    return {
        "id": "v1",
        "status": "CURRENT",
        "min_version": str(CONTAINER.lowest),
        "max_version": str(CONTAINER.highest),
        "links": [{"rel": "self", "href": call.url.link(f"{ZUN_BASE}/v1/")}],
    }


def list_hosts(call: Call) -> Answer:
    """List hosts, by name unless another key is asked for."""
    page = call.store.list_fleet(
        FleetQuery(
            after=call.marker,
            limit=call.limit,
            order=_SORT_KEYS[call.query.get("sort_key", "hostname")],
            is_descending=call.query.get("sort_dir") == "desc",
            columns=_COLUMNS,
            counts_siblings=True,
        )
    )
    following = None if page.next is None else next_url(call, page.items[-1].node.uuid)
    return Answer({"hosts": [_render(found, call) for found in page.items], "next": following})


def show_host(call: Call) -> Answer:
    """Show a host by its uuid or name."""
    return Answer(_render(_find(call, call.params["id"]), call))


def _find(call: Call, name: str) -> FleetNode:
    """Return the node with a uuid, or with a name as `_name` gives it.

    Raises:
        NotFoundError: no such host.
        ConflictError: the name is that of several nodes.
    """
    for query in _list_queries(name):
        page = call.store.list_fleet(query)
        found = [item for item in page.items if query.uuid is not None or _name(item) == name]
        if len(found) > 1:
            raise ConflictError(f"several hosts have the name {name}; use the uuid")
        if found:
            return found[0]
    raise NotFoundError(f"no such host: {name}")


def _list_queries(name: str) -> list[FleetQuery]:
    """Return the queries that may find a host, the most exact first."""
    shape = FleetQuery(columns=_COLUMNS, counts_siblings=True, limit=_MAX_OF_A_NAME)
    try:
        return [replace(shape, uuid=parse_uuid(name))]
    except ValueError:
        return [replace(shape, host=name), replace(shape, nodename=name)]


def _name(found: FleetNode) -> str:
    """Return the name of a host: its own where it has one node, else the node's."""
    return found.node.host if found.host_nodes == 1 else found.node.nodename


def _render(found: FleetNode, call: Call) -> dict[str, Any]:
    node = found.node
    values = node.values
    link = call.url.link(f"{ZUN_BASE}/v1/hosts/{node.uuid}")
    return {
        "uuid": node.uuid,
        "hostname": _name(found),
        **{key: getattr(values, column) for key, column in _SAME_NAME.items()},
        "mem_free": max(0, values.memory_mb - values.memory_mb_used),
        "links": [
            {"rel": "self", "href": link},
            {"rel": "bookmark", "href": call.url.link(f"{ZUN_BASE}/hosts/{node.uuid}")},
        ],
    }
