"""Read what placement has of a node for commands that compare it with the row."""

from typing import TYPE_CHECKING, Any

from nodetracker.model.errors import PlacementError

if TYPE_CHECKING:  # imported late: few hosts use placement
    from nodetracker.accounting.placement.comparison import ClassUsage


def read_usage(app: Any, uuid: str) -> "dict[str, ClassUsage]":
    """Return the usage of each class; nothing if placement is not used or cannot be read."""
    if not app.conf.placement.enabled:
        return {}
    from nodetracker.accounting.placement.comparison import sum_usage
    from nodetracker.bootstrap.placement import build_placement_client
    from nodetracker.placement.tree_reader import read_tree

    client = build_placement_client(app.conf)
    try:
        return sum_usage(read_tree(client, uuid), uuid)
    except PlacementError as error:
        app.stderr.write(f"placement is not compared: {error}\n")
        return {}
