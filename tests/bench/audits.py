"""Audits of one host: statements of each kind, and CPU time of this process for a steady one.

`--sizes`: nodes x guests of each. A heartbeat is sent between audits. The CPU time is compared with
that of a loop of `LOOP_ADDITIONS`, measured just before, as machines and their loads differ.
"""

import argparse
import json
import statistics
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
from tests.bench.databases import Database, Row
from tests.builders import make_incarnation, take_service
from tests.statements import count_statements

DATABASES = ("mariadb", "postgresql", "sqlite")
OPTIONS = {
    "sizes": ["1x0", "1x1", "1x100", "1x1000", "100x0", "100x1", "1000x0", "1000x1"],
    "repeats": 10,
}

PROBE_TIMEOUT = 20.0
LOOP_ADDITIONS = 10**7

Statements = tuple[str, ...]


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Audit new hosts."""
    for size in options.sizes:
        nodes, guests = map(int, size.split("x"))
        host = BenchHost(database.store, database.directory, nodes, guests)
        counts = {kind: len(found) for kind, found in host.audit_each().items()}
        loop = min(measure_loop() for _ in range(3))
        cpu = host.measure_cpu(options.repeats)
        yield (
            "Statements of audits",
            {"nodes": nodes, "guests of each": guests}
            | counts
            | {
                "steady, ms of CPU, median": statistics.median(cpu) * 1000,
                "least": min(cpu) * 1000,
                "loop, ms of CPU": loop * 1000,
                "steady / loop": statistics.median(cpu) / loop,
            },
        )


def measure_loop() -> float:
    """Return the CPU seconds of a loop of additions."""
    started_at = time.process_time()
    total = 0
    for number in range(LOOP_ADDITIONS):
        total += number
    return time.process_time() - started_at


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

    def measure_cpu(self, repeats: int) -> list[float]:
        """Return the CPU seconds of steady audits."""
        self.audit()
        durations = []
        for _ in range(repeats):
            started_at = time.process_time()
            self._tracker.audit(self.agent)
            durations.append(time.process_time() - started_at)
        return durations

    def audit_each(self) -> dict[str, Statements]:
        """Audit the new host once in each situation; return the statements, in their order."""
        found = {"first": self.audit(), "steady": self.audit(), "all rows read": self.reread()}
        self.add_guests(self.nodes[:1])
        found["one guest more"] = self.audit()
        self.add_guests(self.nodes)
        found["a guest more on each node"] = self.audit()
        return found | {"heartbeat": self.report_state()}

    def _make_guest(self) -> dict[str, Any]:
        self._guests += 1
        return {
            "uuid": f"00000000-0000-4000-8000-{self._guests:012d}",
            "vcpus": 1,
            "memory_mb": 64,
            "disk_gb": 1,
        }
