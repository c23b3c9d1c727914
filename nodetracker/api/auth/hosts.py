"""Recognize names and addresses of this machine itself, and the addresses of clients."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

_LOOPBACK_NAMES = ("localhost", "localhost.")


def is_loopback(host: str) -> bool:
    """Return whether a name or address, without a port, is that of the loopback interface.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "[::1]", "::")]
    [True, True, True, True, False]
    """
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def split_port(host: str) -> str:
    """Return the name or address of a ``Host`` header, without the port, in lower case.

    >>> split_port("Node-1:8774"), split_port("[::1]:8774"), split_port("::1")
    ('node-1', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and ":" not in name else host).lower()


def find_client_address(environ: Mapping[str, Any], has_proxy: bool) -> str:
    """Return the address from which a request comes, "-" over a Unix socket.

    Args:
        has_proxy: the nearest proxy says it: the last entry of ``Forwarded`` or
            ``X-Forwarded-For``, as clients may have sent the ones before.

    >>> find_client_address({"HTTP_X_FORWARDED_FOR": "::1, 192.0.2.7:80"}, has_proxy=True)
    '192.0.2.7'
    """
    peer: str = environ.get("REMOTE_ADDR") or "-"
    if not has_proxy:
        return peer
    last = environ.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2]
    if "HTTP_FORWARDED" in environ:
        pairs = environ["HTTP_FORWARDED"].rpartition(",")[2].split(";")
        named = dict(pair.strip().lower().partition("=")[::2] for pair in pairs)
        last = named.get("for", "").strip('"')
    try:
        return str(ip_address(split_port(last.strip()).partition("%")[0]))
    except ValueError:
        return peer
