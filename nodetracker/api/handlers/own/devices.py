"""``/v1/nodes/{uuid}/devices``."""

from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.own.lookup import find_node
from nodetracker.api.paging import next_links, page_of
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import DeviceQuery
from nodetracker.model.pci import ADDRESS_PATTERN
from nodetracker.model.text import to_plain


def list_devices(call: Call) -> Answer:
    """List the PCI devices of a node by address, with what they are assigned to."""
    wanted = page_of(call)
    marker = wanted.marker
    if marker is not None and not ADDRESS_PATTERN.fullmatch(marker):
        raise RequestError("marker", f"invalid value {marker!r}: expected the address of a device")
    node = find_node(call).node
    query = DeviceQuery(node_id=node.id, after=marker, limit=wanted.limit)
    page = call.store.list_device_page(query)
    return Answer(
        {
            "devices": [to_plain(device) for device in page.items],
            "links": next_links(call, page.next),
        }
    )
