"""Programs at their limit of threads, and with a full disk for their log."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodetracker.process.outage import SETTLE_SECONDS
from nodetracker.process.workers import IDLE_SECONDS
from tests.functional.api_service import Service, fill
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.small_disk import SmallDisk
from tests.functional.servers.thread_limit import ThreadLimit
from tests.programs import Programs, Running, wait_until

EXHAUSTED = (503, "nodetracker.exhausted", "5")
INTERVAL = int(IDLE_SECONDS) + 1
DOWN_AFTER = 3 * INTERVAL


@pytest.fixture
def limits() -> Iterator[list[ThreadLimit]]:
    """Limits that are removed after the processes have ended."""
    made: list[ThreadLimit] = []
    yield made
    for limit in made:
        limit.remove()


def list_problems(running: Running) -> list[str]:
    """Return what a program has logged above INFO."""
    return [x for x in running.output().splitlines() if re.search(r" (WARNING|ERROR|CRITICAL) ", x)]


def wait_for_threads(pid: int) -> None:
    """Wait until a process starts no more threads, for longer than one of it may be delayed."""
    tasks, counts = Path(f"/proc/{pid}/task"), [0] * 6

    def is_steady() -> bool:
        counts.append(len(list(tasks.iterdir())))
        return len(set(counts[-6:])) == 1

    wait_until(is_steady, interval=1)


class TestThreads:
    def test_agents_report_and_audit_as_before(
        self, conductor: Conductor, tmp_path: Path, limits: list[ThreadLimit]
    ) -> None:
        """One has a database, the other one conductors."""
        direct = Programs(tmp_path / "direct", conductor.connection, "host-d")
        direct.inventory.write_text(json.dumps({"nodes": [NODE | {"nodename": "node-d"}]}))
        remote = Remote(tmp_path / "remote", conductor.endpoint, conductor.make_token(), "host-r")
        for programs in (direct, remote):  # longer apart than an idle thread lives
            text = programs.path.read_text().replace(
                "report_interval = 1\n", f"report_interval = {INTERVAL}\n"
            )
            text = text.replace("service_down_time = 60\n", f"service_down_time = {DOWN_AFTER}\n")
            options = f"[compute]\nupdate_resources_interval = {INTERVAL}\n"
            programs.path.write_text(text.replace("[compute]\n", options))

        def list_states() -> set[str]:
            return {row["state"] for row in direct.ask("service", "list")}

        with conductor.start_conductor(), direct.start() as one, remote.start() as two:
            for agent in (one, two):
                agent.wait_for("is ready")
                wait_for_threads(agent.process.pid)
                limits.append(ThreadLimit(agent.process.pid))
                limits[-1].reach()
            seen: list[set[str]] = []
            end = time.monotonic() + DOWN_AFTER + INTERVAL
            wait_until(lambda: seen.append(list_states()) or time.monotonic() > end)
            assert set().union(*seen) == {"up"}
            nodes = direct.ask("node", "list")
            assert len(nodes) == 2
            assert all(node["audit_age_seconds"] < DOWN_AFTER for node in nodes)
            for agent in (one, two):
                assert list_problems(agent) == []
                assert agent.stop() == 0
                assert "Traceback" not in agent.output()

    def test_the_rest_service_answers_and_says_once_what_it_cannot_do(
        self, tmp_path: Path, limits: list[ThreadLimit]
    ) -> None:
        """Reads need no further thread; calls of agents do."""
        url = f"sqlite:///{tmp_path}/db.sqlite"
        Programs(tmp_path, url).make_schema()
        fill(url)
        service = Service(tmp_path / "api", url)
        with service.run() as running:
            wait_until(lambda: service.send("/health")[0] == 200)
            wait_for_threads(running.process.pid)  # it starts its timers after it serves
            limits.append(ThreadLimit(running.process.pid))
            limits[0].reach()
            (node,) = service.send("/v1/nodes")[1]["nodes"]
            audit = f"/v1/nodes/{node['uuid']}/audit"
            with ThreadPoolExecutor(16) as clients:
                read = clients.map(lambda _: service.send("/v1/nodes")[0], range(200))
                assert Counter(read) == {200: 200}
                asked = clients.map(lambda _: service.summarize(audit, "POST"), range(50))
                assert Counter(asked) == {EXHAUSTED: 50}
            assert limits[0].count_refused() >= 50
            limits[0].lift()
            time.sleep(SETTLE_SECONDS)
            assert service.send("/v1/nodes")[0] == 200
            running.wait_for("The REST service is back after")
            assert [x.partition("] ")[2] for x in list_problems(running)] == [
                "The REST service: no thread can be started: "
                "the limit of threads or memory is reached"
            ]
            assert "Traceback" not in running.output()


class TestFullLog:
    def test_lost_lines_are_counted_and_said_once(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/db.sqlite"
        Programs(tmp_path, url).make_schema()
        disk = SmallDisk(tmp_path / "log", 1)
        try:
            self.run(Service(tmp_path / "api", url), disk, tmp_path / "log" / "api.log")
        finally:
            disk.remove()

    def run(self, service: Service, disk: SmallDisk, log: Path) -> None:
        extra = f"log_file = {log}\nuse_stderr = false\n[audit]\nlog_file = {log.parent}/audit.log"
        options = f"[api]\nport = {service.port}\nauth_strategy = noauth\nthreads = 4"
        programs = Programs(service.directory, service.url, "api", extra=f"{extra}\n{options}")
        programs.mount_namespace = disk.mount_namespace
        written = disk.path / "api.log"
        with programs.start("nodetracker-api") as running:
            wait_until(lambda: written.exists() and "Serving on" in written.read_text())
            disk.fill()
            for _ in range(100):
                assert service.send("/v1/claims", "POST", {})[0] == 400  # each is a line
            assert "--- Logging error ---" not in running.output()
            assert running.output().count("No space left on device") == 1
            disk.free()
            assert service.send("/v1/claims", "POST", {})[0] == 400
            lines = written.read_text().splitlines()
            counts = [re.search(r" WARNING .* (\d+) lines were lost", line) for line in lines]
            (found,) = filter(None, counts)
            changes = sum("Change req-" in line for line in lines)
            warnings = sum("[audit] log_file" in line for line in lines)
            assert int(found[1]) + changes + warnings >= 101
            assert changes < 101
            assert programs.path.exists()
            assert running.stop() == 0
            assert "Traceback" not in running.output()
