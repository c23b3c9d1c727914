"""The interface of the agents, and the typed client that finds them by host."""

from typing import Any, cast

from nodetracker.ports import HostAgent
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface, Method

COMPUTE = Interface(HostAgent, topic="compute", version="1.0")

CALL_SECONDS = 30.0
AUDIT_SECONDS = 120.0
"""An audit may take that long while probes hang."""


class RpcAgentDirectory:
    """`nodetracker.ports.AgentDirectory` over the broker."""

    def __init__(self, caller: RpcCaller, timeout_seconds: float = CALL_SECONDS) -> None:
        self._caller = caller
        self._timeout = timeout_seconds

    def agent_of(self, host: str) -> HostAgent:
        """See `AgentDirectory`."""

        def call(method: Method, arguments: dict[str, Any]) -> Any:
            is_audit = method.name == "update_available_resource"
            timeout = max(AUDIT_SECONDS, self._timeout) if is_audit else self._timeout
            return self._caller.call(COMPUTE, host, method, arguments, timeout)

        return cast(HostAgent, COMPUTE.make_proxy(call))
