"""Families of resources: each path belongs to one, which decides the form of its answers."""

import enum
import re

NOVA_BASE = "/v2.1"
ZUN_BASE = "/container"
OWN_BASE = "/v1"
PAGE_BASE = "/ui"


class Family(enum.Enum):
    """Families of resources."""

    NOVA = "nova"
    ZUN = "zun"
    OWN = "own"
    PAGE = "page"
    ROOT = "root"  # everything else


_SLASHES = re.compile("//+")

_BASES = {
    NOVA_BASE: Family.NOVA,
    ZUN_BASE: Family.ZUN,
    OWN_BASE: Family.OWN,
    PAGE_BASE: Family.PAGE,
}


def family_of(path: str) -> Family:
    """Return the family of a path, in which several slashes are one.

    >>> family_of("//v2.1/os-services"), family_of("/v1x")
    (<Family.NOVA: 'nova'>, <Family.ROOT: 'root'>)
    """
    base = path.lstrip("/").partition("/")[0]
    return _BASES.get(f"/{base}", Family.ROOT)


def normalize_path(path: str) -> str:
    """Return a path in which several slashes are one, and none at the end.

    >>> normalize_path("//v1/nodes//"), normalize_path("")
    ('/v1/nodes', '/')
    """
    return _SLASHES.sub("/", path).rstrip("/") or "/"
