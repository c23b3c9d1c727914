"""Ports between an agent and other processes: calls to it, and observers of its work."""

from collections.abc import Callable
from typing import Protocol

from nodetracker.model.audit import AuditOutcome, AuditReport
from nodetracker.model.change import Notification, StoreEvent
from nodetracker.model.service import HostNews


class AuditObserver(Protocol):
    """Observes every audit, stored or not; must not block and must not raise."""

    def audited(self, report: AuditReport) -> None:
        """Process the report of one audit."""


class StoreObserver(Protocol):
    """Learns what a process's store has committed; must not block.

    An error that it raises is logged, and affects neither the caller nor other observers.
    """

    def committed(self, event: StoreEvent) -> None:
        """Process what one call changed, in the thread that called."""


class Notifier(Protocol):
    """Sends notifications; must not block and must not raise."""

    def notify(self, notification: Notification) -> None:
        """Queue one notification, to be sent as soon as possible."""


class HostAgent(Protocol):
    """What other processes call of a host's agent, by rows; see `AgentDirectory`.

    Every method may raise StoreError: the agent's database operation failed.
    """

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        """Audit the host now and return the outcome.

        Args:
            nodename: return the outcome of this node only.

        Raises:
            NotFoundError: the driver lists no such node, and no row of it exists.
        """

    def host_power_action(self, action: str) -> None:
        """See `Driver.host_power_action`."""


class WakeableAgent(Protocol):
    """What other processes send to a host's agent over the broker."""

    def wake(self) -> None:
        """Let the agent read soon what others have written about its host; nobody waits."""


class CalledHost(Protocol):
    """What an agent knows of its host, for whoever carries out the calls of others."""

    def watch_news(self, handle: Callable[[HostNews], None] | None) -> None:
        """Pass what heartbeats have to a function; None = take no calls with them."""

    def take_news(self) -> HostNews | None:
        """Return the host's news, None if they cannot be read now."""

    def read_known(self) -> HostNews:
        """Return the generations and the service's state as last read or written."""

    def ledger_moved(self, nodename: str | None = None) -> None:
        """Audit a node soon; None = all nodes."""


class CallServer(Protocol):
    """Serves other processes in its own threads."""

    def start(self) -> None:
        """Start in the background; return immediately."""

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more calls; return whether all running ones ended in time."""


class AgentDirectory(Protocol):
    """Finds the agents of other hosts."""

    def agent_of(self, host: str) -> HostAgent:
        """Return the agent of a host; nothing is sent before one of its methods is called.

        Its methods raise RpcUnavailableError when the agent does not run, or no answer
        arrives in time, and RefusedError for one of a release that takes no calls.
        """
