"""What a conductor asks itself through the broker: it needs neither the store nor a free worker."""

from typing import Protocol

from nodetracker.rpc.interface import Interface


class PingEndpoint(Protocol):
    """Whoever answers, as soon as the broker has brought the question."""

    def ping(self) -> None:
        """Do nothing."""


class PingResponder:
    """`PingEndpoint`."""

    def ping(self) -> None:
        """See `PingEndpoint`."""


PING = Interface(PingEndpoint, topic="conductor-ping", version="1.0")
