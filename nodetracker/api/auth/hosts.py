"""Recognize names and addresses of this machine itself."""

from ipaddress import ip_address

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
