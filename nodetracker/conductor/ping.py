"""Let a conductor call itself through the broker, by which it checks the broker."""

from collections.abc import Callable

from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.server import RpcServer
from nodetracker.rpc.transport import Transport

CALL_SECONDS = 5.0
START_SECONDS = 5.0
"""How long a call waits for the server of a conductor that has just started."""


class PingEndpoint:
    """Answers as soon as the broker delivers a call; needs neither the store nor a free worker."""

    def ping(self) -> None:
        """Do nothing."""


PING = Interface(PingEndpoint, topic="conductor-ping", version="1.0")


class SelfCall:
    """Calls this process through the broker.

    Args:
        host: the conductor's name.

    Attributes:
        server: answers the calls; not started. Its clock is never set, so it refuses no
            call as late: a late ping does no harm, and after the database has hung, the
            clocks of server and caller differ.
    """

    def __init__(
        self, get_transport: Callable[[], Transport], host: str, caller: RpcCaller
    ) -> None:
        self.server = RpcServer(
            get_transport, PING, host, PingEndpoint(), DatabaseClock(), threads=1
        )
        self._host = host
        self._caller = caller

    def __call__(self) -> None:
        """Make one call, once the server listens or the time for its start is over.

        Raises:
            RpcError: it failed.
        """
        self.server.wait_until_serving(START_SECONDS)
        self._caller.call(PING, self._host, PING.methods["ping"], {}, CALL_SECONDS)
