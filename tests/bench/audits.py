"""Measure the costs of an audit: the number of its statements, and its CPU time."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodetracker.compute.host_rows import FULL_LOAD_SECONDS
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.db.store import SqlStore
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import AgentKey
from nodetracker.virt.fake.plugin import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import make_incarnation, take_service
from tests.statements import count_statements

PROBE_TIMEOUT = 20.0

Statements = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditCosts:
    """The statements that each kind of audit of one host sends, in their order.

    Attributes:
        first: of an empty database.
        steady: nothing has changed.
        reread: nothing has changed, and all rows are read again.
        one_guest_more: one node has a new guest.
        every_node_changed: each node has a new guest.
        heartbeat: not an audit; sent between audits.
        steady_cpu_seconds: of this process during a steady audit, the minimum of three.
    """

    nodes: int
    guests_per_node: int
    first: Statements
    steady: Statements
    reread: Statements
    one_guest_more: Statements
    every_node_changed: Statements
    heartbeat: Statements
    steady_cpu_seconds: float

    def as_row(self) -> dict[str, int | float]:
        """Return the figures by name, statements as their number."""
        return {
            name: len(value) if isinstance(value, tuple) else round(value, 6)
            for name in self.__slots__
            for value in (getattr(self, name),)
        }


class BenchHost:
    """An agent of its own host, with its nodes in a file and a clock that does not advance.

    Its name and identity are new each time, so several fit into one database.

    Attributes:
        seconds: of the tracker's clock.
        nodes: the entries of the file; `write` writes them.
    """

    def __init__(self, store: SqlStore, directory: Path, nodes: int, guests_per_node: int) -> None:
        self.seconds = 0.0
        self._guests = 0
        self._reports = 0
        self._store = store
        agent_id = str(uuid.uuid4())
        host = f"bench-{agent_id}"
        self._path = directory / f"{host}.yaml"
        self.nodes: list[dict[str, Any]] = [
            {
                "nodename": f"node-{number}",
                "vcpus": 16,
                "memory_mb": 65536,
                "disk_gb": 500,
                "guests": [self._make_guest() for _ in range(guests_per_node)],
            }
            for number in range(nodes)
        ]
        self.write()
        service = take_service(store, host, make_incarnation(agent_id=agent_id))
        self.agent = AgentKey(host, COMPUTE_BINARY, agent_id, service.epoch, service.uuid)
        self._tracker = ResourceTracker(
            AgentSettings(host, "", Policy(), probe_timeout=PROBE_TIMEOUT),
            FakeDriver(str(self._path), ProbeRunner(PROBE_TIMEOUT)),
            store,
            lambda: self.seconds,
        )

    def write(self) -> None:
        """Write the file as JSON, which is valid YAML and quick to write."""
        self._path.write_text(json.dumps({"nodes": self.nodes}))

    def add_guests(self, nodes: Sequence[Mapping[str, Any]], count: int = 1) -> None:
        """Add guests to each of these nodes."""
        for node in nodes:
            node["guests"] += [self._make_guest() for _ in range(count)]
        self.write()

    def audit(self) -> Statements:
        """Audit once and return the statements."""
        with count_statements(self._store) as seen:
            report = self._tracker.audit(self.agent)
        assert report.is_good, (report.listing_error, report.errors)
        return tuple(seen.statements)

    def reread(self) -> Statements:
        """Audit when all rows are due to be read again; return the statements."""
        self.seconds += FULL_LOAD_SECONDS
        return self.audit()

    def report_state(self) -> Statements:
        """Write a heartbeat and return the statements."""
        self._reports += 1
        with count_statements(self._store) as seen:
            self._store.report_state(self.agent, self._reports, AuditState(1.0))
        return tuple(seen.statements)

    def measure_cpu(self) -> float:
        """Return the CPU seconds of a steady audit, the minimum of three."""
        durations = []
        for _ in range(3):
            started_at = time.process_time()
            self._tracker.audit(self.agent)
            durations.append(time.process_time() - started_at)
        return min(durations)

    def _make_guest(self) -> dict[str, Any]:
        self._guests += 1
        return {
            "uuid": f"00000000-0000-4000-8000-{self._guests:012d}",
            "vcpus": 1,
            "memory_mb": 64,
            "disk_gb": 1,
        }


def measure_audits(
    store: SqlStore, directory: Path, nodes: int, guests_per_node: int
) -> AuditCosts:
    """Run each kind of audit once, for a new host with that many nodes and guests.

    Args:
        store: with its schema; other hosts' rows in it do not matter.
        directory: gets the file with the nodes.
    """
    host = BenchHost(store, directory, nodes, guests_per_node)
    first = host.audit()
    steady = host.audit()
    cpu_seconds = host.measure_cpu()
    reread = host.reread()
    host.add_guests(host.nodes[:1])
    one_guest_more = host.audit()
    host.add_guests(host.nodes)
    every_node_changed = host.audit()
    return AuditCosts(
        nodes,
        guests_per_node,
        first,
        steady,
        reread,
        one_guest_more,
        every_node_changed,
        host.report_state(),
        cpu_seconds,
    )
