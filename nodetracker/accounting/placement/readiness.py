"""Evaluate whether placement is ready for an agent that reports to it."""

from collections.abc import Iterable

MICROVERSION = (1, 38)
"""The first one with types of consumers."""


def explain_old_version(version: tuple[int, int]) -> str | None:
    """Return why a service is too old, None if it is not.

    >>> explain_old_version((1, 36))
    'placement supports microversions up to 1.36: 1.38 is needed'
    """
    if version >= MICROVERSION:
        return None
    found, needed = (".".join(map(str, each)) for each in (version, MICROVERSION))
    return f"placement supports microversions up to {found}: {needed} is needed"


def explain_name_conflicts(conflicts: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each node whose name another provider has.

    Args:
        conflicts: nodename, uuid of the node and uuid of the provider.
    """
    return [
        f"provider {other} has the name of node {nodename}, whose uuid is {uuid}: "
        "see placement adopt and placement heal"
        for nodename, uuid, other in conflicts
    ]
