"""Notice when no agent reaches a conductor any more, which is rarely the agents' fault."""

from typing import Protocol

from nodetracker.model.service import AGENTS, AuditState


class Calls(Protocol):
    """What an endpoint knows of the agents that called it."""

    @property
    def called_hosts(self) -> int:
        """Number of hosts whose agents have called."""

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last call, None before the first."""


class AgentWatch:
    """Reports in a conductor's row that no agent has called it for `service_down_time`.

    An expired certificate or a firewall silences all agents at once while their hosts
    are well. See `find_conductor_outage`.
    """

    def __init__(self, calls: Calls, service_down_time: int) -> None:
        self._calls = calls
        self._service_down_time = service_down_time

    @property
    def is_out(self) -> bool:
        """True while no agent calls."""
        silent = self._calls.silent_seconds
        return silent is None or silent > self._service_down_time

    def state(self) -> AuditState:
        """Return the entry for the conductor's row; its age is that of the last call."""
        if not self.is_out:
            return AuditState()
        entry = {
            "age_seconds": self._calls.silent_seconds,
            "agents": self._calls.called_hosts,
            "error": "no agent has called this conductor",
        }
        return AuditState(nodes={AGENTS: entry})
