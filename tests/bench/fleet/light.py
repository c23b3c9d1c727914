"""Run many agents in one thread: their own managers and statements, without threads and drivers.

`python -m tests.bench.fleet.light DATABASE FIRST COUNT`: prints "ready" once the agents FIRST up to
FIRST + COUNT - 1 are built. Each line of its input is answered by a line of JSON with what happened
since the one before; the first one starts the agents and is answered once each has audited. Ends
with its input.

Each heartbeat and audit is due when it would be in the agent's own threads. While the database
carries one out, no other of this process can start: what is late shows that more processes are
needed, or a larger machine. All agents of a process share a connection.
"""

import argparse
import gc
import heapq
import json
import os
import random
import select
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from nodetracker.compute.audit_queue import NodeReading
from nodetracker.compute.identity import ensure_compute_id, read_incarnation
from nodetracker.compute.manager import ComputeManager
from nodetracker.compute.node_reader import NodeReader
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.model.service import Incarnation
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import DriverCapability, Store
from nodetracker.process.loops import spread_first
from tests.bench.databases import cpu_seconds, rss_mib
from tests.bench.fleet.worker import NICENESS
from tests.builders import make_guest, make_snapshot

NAMESPACE = uuid.UUID("0b6b6f0e-5d0b-4f6e-9a55-6f3b0c1d2e3f")

START, HEARTBEAT, AUDIT = "start", "heartbeat", "audit"

ORDER = (HEARTBEAT, AUDIT, START)
"""What is due is done in this order: threads of their own would not wait for the others' starts."""


class StillDriver:
    """A node that does not change."""

    capabilities = frozenset[DriverCapability]()

    def __init__(self, snapshot: HostSnapshot) -> None:
        self.snapshot = snapshot

    def init_host(self) -> None:
        """Do nothing."""

    def get_available_nodes(self) -> NodeListing:
        """Return the node's name."""
        return NodeListing((self.snapshot.nodename,))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Return the node as it always is."""
        return self.snapshot


class DirectReader(NodeReader):
    """Reads nodes of such a driver in the thread that audits."""

    def start(
        self,
        nodename: str,
        deleted_before: Mapping[str, float] = MappingProxyType({}),
        is_urgent: bool = False,
    ) -> None:
        """Put the node's reading on the queue."""
        self._queue.put_reading(NodeReading(self._driver.get_available_resource(nodename)))

    def accept(self, readings: Sequence[NodeReading]) -> list[NodeReading]:
        """Return all of them."""
        return list(readings)


class LightAgent:
    """The manager of one agent with one node, and when each of its loops ticks.

    Attributes:
        due: moment of each loop's next tick, and of the start.
    """

    def __init__(
        self, store: Store, number: int, guests: int, incarnation: Incarnation, state_path: str
    ) -> None:
        name = f"light-{number:05d}"
        own = replace(incarnation, agent_id=str(uuid.uuid5(NAMESPACE, name)))
        listed = [make_guest(f"{name}-{guest}", details={}) for guest in range(guests)]
        driver: Any = StillDriver(make_snapshot(name, *listed))
        self._settings = AgentSettings(name, state_path, Policy())
        self._manager = ComputeManager(self._settings, own, "bench", driver, store)
        self._manager._tracker._reader = DirectReader(driver, self._manager._queue, 20, 1)
        self._fractions = {loop: spread_first(random.random()) for loop in (HEARTBEAT, AUDIT)}
        self.due: dict[str, float] = {}

    @property
    def is_heartbeat_requested(self) -> bool:
        """Whether an audit has ended since the last heartbeat."""
        return self._manager.heartbeat_requests.has_request

    @property
    def has_failed(self) -> bool:
        """Whether the last statement of the agent failed."""
        return self._manager._database.is_out

    def start(self) -> None:
        """Do what `ComputeService` does at its start."""
        self._wait(HEARTBEAT)
        self._manager.init_host()
        self._manager.pre_start_hook()
        self._wait(AUDIT)

    def tick(self, loop: str, is_requested: bool = False) -> None:
        """Do what a tick of `PeriodicLoop` does."""
        if not is_requested:
            self._fractions[loop] = 1.0
        self._wait(loop)
        if loop == AUDIT:
            self._manager.inventory_host()
        else:
            self._manager.heartbeat_requests.clear()
            self._manager.report_state()

    def _wait(self, loop: str) -> None:
        settings = self._settings
        interval = settings.report_interval if loop == HEARTBEAT else settings.audit_interval
        assert interval is not None
        self.due[loop] = time.monotonic() + interval * self._fractions[loop]


class Schedule:
    """What is due of the agents of this process, and when.

    Args:
        ramp_seconds: time over which they start; 0 = all at once.
    """

    def __init__(self, agents: Sequence[LightAgent], ramp_seconds: float) -> None:
        self._agents = agents
        self._heaps: dict[str, list[tuple[float, int]]] = {kind: [] for kind in ORDER}
        self._figures = _make_figures()
        self._left = len(agents)
        self._ramp_seconds = ramp_seconds

    @property
    def has_started(self) -> bool:
        """Whether each agent has audited."""
        return not self._left

    def start(self) -> None:
        """Let all starts be due."""
        now, step = time.monotonic(), self._ramp_seconds / max(1, len(self._agents))
        for number, agent in enumerate(self._agents):
            agent.due[START] = now + number * step
            self._push(START, number)

    def wait(self, is_interrupted: Callable[[float], bool]) -> None:
        """Work until it is interrupted.

        Args:
            is_interrupted: waits for some seconds at most.
        """
        while True:
            now = time.monotonic()
            kind = next((k for k, heap in self._heaps.items() if heap and heap[0][0] <= now), None)
            first = min((heap[0][0] for heap in self._heaps.values() if heap), default=now + 1)
            if is_interrupted(first - now if kind is None else 0.0):
                return
            if kind is not None:
                self._work(kind, now)

    def take_figures(self) -> dict[str, float]:
        """Return what happened since the last call."""
        figures, self._figures = self._figures, _make_figures()
        return figures

    def _work(self, kind: str, now: float) -> None:
        due_at, number = heapq.heappop(self._heaps[kind])
        agent = self._agents[number]
        if agent.due[kind] != due_at:
            return  # a requested tick has postponed it
        self._note(f"latest {kind}, s", now - due_at)
        if kind == START:
            self._measure(START, agent.start)
            self._left -= 1
        else:
            self._measure(kind, partial(agent.tick, kind))
        if agent.is_heartbeat_requested:
            self._measure(HEARTBEAT, partial(agent.tick, HEARTBEAT, is_requested=True))
        self._figures["failures"] += agent.has_failed
        self._push(HEARTBEAT, number)
        if kind != HEARTBEAT:
            self._push(AUDIT, number)

    def _push(self, kind: str, number: int) -> None:
        heapq.heappush(self._heaps[kind], (self._agents[number].due[kind], number))

    def _measure(self, kind: str, call: Callable[[], None]) -> None:
        started_at = time.monotonic()
        call()
        self._note(f"slowest {kind}, ms", (time.monotonic() - started_at) * 1000)
        self._figures[f"{kind}s"] += 1

    def _note(self, name: str, value: float) -> None:
        self._figures[name] = max(value, self._figures[name])


def _make_figures() -> dict[str, float]:
    counted = dict.fromkeys(("failures", *(f"{kind}s" for kind in ORDER)), 0)
    names = ("slowest {}, ms", "latest {}, s")
    return counted | {name.format(kind): 0.0 for kind in ORDER for name in names}


def main() -> None:
    """Run agents."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet.light")
    parser.add_argument("database")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--state-path", required=True)
    parser.add_argument("--guests", type=int, default=10)
    parser.add_argument("--ramp", type=float, default=0.0)
    arguments = parser.parse_args()
    os.nice(NICENESS)
    store = open_store(DatabaseSettings(arguments.database, {"max_pool_size": 1}))
    numbers = range(arguments.first, arguments.first + arguments.count)
    incarnation = read_incarnation(ensure_compute_id(Path(arguments.state_path)), 10)
    agents = [
        LightAgent(store, number, arguments.guests, incarnation, arguments.state_path)
        for number in numbers
    ]
    gc.freeze()  # processes of one agent each would not search so many objects
    fleet = Schedule(agents, arguments.ramp)
    process = psutil.Process()
    cpu = cpu_seconds(process)

    def is_answer_due(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], max(0.0, seconds))[0])

    print("ready", flush=True)
    sys.stdin.readline()
    fleet.start()
    fleet.wait(lambda seconds: fleet.has_started or is_answer_due(seconds))
    while True:
        used, cpu = cpu_seconds(process) - cpu, cpu_seconds(process)
        print(
            json.dumps(
                fleet.take_figures() | {"agents, CPU seconds": used, "agents MiB": rss_mib(process)}
            ),
            flush=True,
        )
        fleet.wait(is_answer_due)
        if not sys.stdin.readline():
            break
    store.close()


if __name__ == "__main__":
    main()
