"""Carry out the calls of other processes: `nodetracker.ports.HostAgent` for this host."""

from dataclasses import replace

from nodetracker.compute.manager import ComputeManager
from nodetracker.model.audit import AuditOutcome
from nodetracker.ports import Driver
from nodetracker.usecases.reads import missing_node


class HostOperations:
    """Serves one host; safe for several threads."""

    def __init__(self, host: str, manager: ComputeManager, driver: Driver) -> None:
        self._host = host
        self._manager = manager
        self._driver = driver

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        self._driver.refresh()
        outcome = AuditOutcome.of(self._manager.update_available_resource())
        if nodename is None:
            return outcome
        if nodename not in outcome.nodes:
            raise missing_node(self._host, nodename)
        return replace(outcome, nodes={nodename: outcome.nodes[nodename]})

    def host_power_action(self, action: str) -> None:
        self._driver.host_power_action(action)
