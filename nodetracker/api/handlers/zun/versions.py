"""``/container`` and ``/container/v1``: the version documents of Zun's API."""

from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import CONTAINER, ZUN_BASE

_MEDIA_TYPE = {"base": "application/json", "type": "application/vnd.openstack.zun.v1+json"}


def list_versions(call: Call) -> Answer:
    """List the versions of Zun's API."""
    version = _describe(call)
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


def _describe(call: Call) -> dict[str, Any]:
    return {
        "id": "v1",
        "status": "CURRENT",
        "min_version": str(CONTAINER.lowest),
        "max_version": str(CONTAINER.highest),
        "links": [{"rel": "self", "href": call.url.link(f"{ZUN_BASE}/v1/")}],
    }
