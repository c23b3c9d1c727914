"""Implement the agents of other hosts by calls over the broker."""

from typing import Any

from nodetracker.ports import HostAgent
from nodetracker.ports.methods import delegated
from nodetracker.rpc.audit_socket import AUDIT_SECONDS
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface

COMPUTE = Interface(HostAgent, topic="compute", version="1.1")

CALL_SECONDS = 30.0
CAST_SECONDS = 5.0


class RpcAgentDirectory:
    """`nodetracker.ports.AgentDirectory` over the broker."""

    def __init__(self, caller: RpcCaller, timeout_seconds: float = CALL_SECONDS) -> None:
        self._caller = caller
        self._timeout = timeout_seconds

    def agent_of(self, host: str) -> HostAgent:
        """See `AgentDirectory`."""
        return RpcAgent(self._caller, host, self._timeout)


class RpcAgent:
    """`nodetracker.ports.HostAgent` of one host, by calls over the broker."""

    def __init__(self, caller: RpcCaller, host: str, timeout_seconds: float) -> None:
        self._caller = caller
        self._host = host
        self._timeout = timeout_seconds

    update_available_resource = delegated(HostAgent.update_available_resource)
    instance_claim = delegated(HostAgent.instance_claim)
    confirm_claim = delegated(HostAgent.confirm_claim)
    abort_claim = delegated(HostAgent.abort_claim)
    renew_claim = delegated(HostAgent.renew_claim)
    move_claim = delegated(HostAgent.move_claim)
    confirm_migration = delegated(HostAgent.confirm_migration)
    revert_migration = delegated(HostAgent.revert_migration)
    set_host_enabled = delegated(HostAgent.set_host_enabled)
    host_maintenance_mode = delegated(HostAgent.host_maintenance_mode)
    host_power_action = delegated(HostAgent.host_power_action)
    get_host_uptime = delegated(HostAgent.get_host_uptime)
    get_node_view = delegated(HostAgent.get_node_view)

    def ledger_moved(self, nodename: str | None = None) -> None:
        """See `HostAgent`; returns when the broker has the message.

        Raises:
            RpcError: it does not accept it, or no such agent listens.
        """
        method = COMPUTE.methods["ledger_moved"]
        arguments = method.encode_arguments(nodename)
        self._caller.cast(COMPUTE, self._host, method, arguments, CAST_SECONDS)

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        method = COMPUTE.methods[name]
        arguments = method.encode_arguments(*positional, **named)
        is_audit = name == "update_available_resource"
        timeout = max(AUDIT_SECONDS, self._timeout) if is_audit else self._timeout
        return self._caller.call(COMPUTE, self._host, method, arguments, timeout)
