"""``/`` and ``/v2.1``: the version documents of Nova's API."""

from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import COMPUTE, NOVA_BASE

_UPDATED = "2013-07-23T11:33:21Z"
_MEDIA_TYPE = {
    "base": "application/json",
    "type": "application/vnd.openstack.compute+json;version=2.1",
}


def list_versions(call: Call) -> Answer:
    """List the versions of Nova's API."""
    return Answer({"versions": [_describe(call)]})


def show_version(call: Call) -> Answer:
    """Show the version of Nova's API."""
    return Answer({"version": _describe(call) | {"media-types": [_MEDIA_TYPE]}})


def _describe(call: Call) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(COMPUTE.highest),
        "min_version": str(COMPUTE.lowest),
        "updated": _UPDATED,
        "links": [{"rel": "self", "href": call.url.link(f"{NOVA_BASE}/")}],
    }
