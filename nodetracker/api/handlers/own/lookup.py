"""Find the object that a path names."""

from nodetracker.api.call import Call
from nodetracker.api.query import parse_path_uuid
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.fleet import FleetNode, FleetQuery
from nodetracker.model.listing import Page


def find_node(call: Call, columns: tuple[str, ...] = (), reads_audits: bool = False) -> FleetNode:
    """Return the node that the path names, by one statement.

    Raises:
        NotFoundError: no such node.
    """
    return find_node_page(call, columns, reads_audits).items[0]


def find_node_page(
    call: Call, columns: tuple[str, ...] = (), reads_audits: bool = False
) -> Page[FleetNode]:
    """Return the node that the path names as a page of one, which has the database's time.

    Raises:
        NotFoundError: no such node.
    """
    uuid = parse_path_uuid(call.params["uuid"], "node")
    page = call.store.list_fleet(FleetQuery(uuid=uuid, columns=columns, reads_audits=reads_audits))
    if not page.items:
        raise NotFoundError(f"no such node: {uuid}")
    return page


def marker_id(marker: str | None) -> int | None:
    """Return the marker of a list whose items have integers as ids.

    Raises:
        RequestError: it is not such an id.
    """
    if marker is None:
        return None
    if not marker.isascii() or not marker.isdigit() or len(marker) > _MOST_DIGITS:
        raise RequestError("marker", f"invalid value {marker!r}: expected the id of an item")
    return int(marker)


_MOST_DIGITS = 18  # below 2**63, the largest number that databases compare
