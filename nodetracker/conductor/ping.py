"""Answer a conductor's own calls, by which it checks the broker."""

from nodetracker.rpc.interface import Interface


class PingEndpoint:
    """Answers as soon as the broker delivers a call; needs neither the store nor a free worker."""

    def ping(self) -> None:
        """Do nothing."""


PING = Interface(PingEndpoint, topic="conductor-ping", version="1.0")
