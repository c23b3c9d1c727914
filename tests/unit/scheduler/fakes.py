"""Fleets for the scheduler's tests: nodes of a few words in a store of any kind."""

import dataclasses

from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.node import NodeValues
from nodetracker.model.service import AuditState
from tests.builders import NOW, create, later, register
from tests.stores import SqliteStore


class FakeFleet:
    """A store whose clock is set by hand, filled node by node."""

    def __init__(self):
        self.now = NOW
        self.store = SqliteStore(lambda: self.now)
        self.agents = {}
        self.beats = 0

    def sleep(self, seconds):
        self.now = later(seconds)

    def report_state(self, *hosts):
        """Let these hosts be heard of, all when none is named."""
        self.beats += 1
        for host in hosts or self.agents:
            self.store.report_state(self.agents[host], self.beats, AuditState())

    def add(self, host="h1", nodename="n1", guests=(), overhead_mb=0, charge=Amounts(), **values):  # noqa: B008
        """Make a node of 8 CPUs, 8 GiB and 100 GiB, ratios 1, nothing reserved."""
        if host not in self.agents:
            self.agents[host] = register(self.store, host, agent_id=f"agent-{host}")
            self.report_state(host)
        base = NodeValues(
            vcpus=8,
            memory_mb=8192,
            local_gb=100,
            cpu_allocation_ratio=1.0,
            ram_allocation_ratio=1.0,
            disk_allocation_ratio=1.0,
        )
        node = dataclasses.replace(base, overhead={"memory_mb": overhead_mb}, **values)
        total = charge + sum((charge_of_guest(guest, overhead_mb) for guest in guests), Amounts())
        used = usage_columns(total, node.reserved, node.memory_mb, node.local_gb)
        node = dataclasses.replace(node, **used)
        agent = self.agents[host]
        self.store.apply_changes(agent, [create(agent, nodename, node, tuple(guests))], 60)


LOST = {"memory": FactEntry(FactState.UNKNOWN, "proc", NOW, "gone")}
