"""Find this machine's own address."""

import socket

_ELSEWHERE = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): it is never this machine's own."""

LOOPBACK = "127.0.0.1"


def read_own_address() -> str:
    """Return the IPv4 address of the default route, 127.0.0.1 without one.

    Source: connect(2), which selects the route of a datagram socket and sends nothing.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect(_ELSEWHERE)
            return str(datagrams.getsockname()[0])
    except OSError:
        return LOOPBACK
