"""What a conductor asks itself through the broker: it needs neither the store nor a free worker."""

from typing import Protocol

from nodetracker.rpc.interface import Interface


class Pinged(Protocol):
    """Whoever answers, as soon as the broker has brought the question."""

    def ping(self) -> None:
        """Do nothing."""


class Echo:
    """`Pinged`."""

    def ping(self) -> None:
        """See `Pinged`."""


PING = Interface(Pinged, topic="conductor-ping", version="1.0")
