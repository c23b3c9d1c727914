"""nodetracker-api while its database or its broker is away: the right answer, and then it works again."""

import contextlib
import http.client
import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.builders import create, make_guest, register
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, Running, wait_until

CLIENTS = 4
AWAY = (503, "nodetracker.database.unavailable", "5")


@dataclass
class Service:
    """nodetracker-api on a database, with a broker that nobody serves.

    Attributes:
        seen: status, code and Retry-After of all requests of `load`.
    """

    directory: Path
    url: str
    port: int = field(default_factory=find_free_port)
    seen: Counter[tuple[int, str | None, str | None]] = field(default_factory=Counter)

    def send(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any, str | None]:
        """Return status, JSON and Retry-After of one request."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        ) as connection:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content)
            answer = connection.getresponse()
            document = json.loads(answer.read() or b"null")
            return answer.status, document, answer.headers["Retry-After"]

    def summarize(self, path: str, method: str = "GET", body: Any = None):
        """Return status, code and Retry-After of one request."""
        status, document, retry_after = self.send(path, method, body)
        code = document["errors"][0]["code"] if status >= 400 else None
        return status, code, retry_after

    def read_health(self) -> tuple[int, dict[str, str]]:
        """Return the status of ``/health``, and the states of what may be away."""
        status, document, _ = self.send("/health")
        return status, {name: document["checks"][name]["status"] for name in ("broker", "database")}

    def read_metrics(self) -> str:
        """Return the page of ``/metrics``."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=90) as answer:
            return answer.read().decode()

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Send requests from some clients until the block ends."""
        is_over = threading.Event()

        def request() -> None:
            while not is_over.wait(0.02):  # so that they leave the servers a processor
                for path in ("/v1/nodes", "/v1/services", "/v1/workloads"):
                    self.seen[self.summarize(path)] += 1

        clients = [threading.Thread(target=request) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            is_over.set()
            for client in clients:
                client.join()

    def wait_for_more(self, wanted: tuple[int, str | None, str | None]) -> None:
        """Wait until the clients have seen an answer again."""
        before = self.seen[wanted]
        wait_until(lambda: self.seen[wanted] > before + CLIENTS)

    @contextlib.contextmanager
    def run(self, extra: str = "") -> Iterator[Running]:
        options = f"[api]\nport = {self.port}\nauth_strategy = noauth\nthreads = 4"
        programs = Programs(self.directory, self.url, "api", extra=f"{extra}\n{options}")
        with programs.start("nodetracker-api") as running:
            running.wait_for("Serving on")
            yield running
            running.stop()


@pytest.fixture
def server() -> Iterator[MariaDB]:
    made = MariaDB()
    yield made
    made.remove()


def fill(url: str) -> str:
    """Add a host with a node; return the uuid of its service."""
    store = open_store(DatabaseSettings(url))
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1", guests=(make_guest(),))], 60)
    store.close()
    return agent.service_uuid


def list_problems(running: Running) -> list[str]:
    """Return the lines of the log that want an operator's attention."""
    lines = running.output().splitlines()
    return [line for line in lines if " WARNING " in line or " ERROR " in line]


def test_a_database_that_is_stopped_read_only_or_cut_under_load(server: MariaDB, tmp_path):
    url = server.create_database("nt_api")
    Programs(tmp_path, url).make_schema()
    path = f"/v1/services/{fill(url)}"
    service = Service(tmp_path, url)
    change = {"maintenance": True}
    fine = (200, None, None)
    with service.run() as running, service.load():
        service.wait_for_more(fine)
        wait_until(lambda: service.read_health() == (200, {"broker": "pass", "database": "pass"}))
        server.stop()
        service.wait_for_more(AWAY)
        wait_until(lambda: service.read_health() == (503, {"broker": "pass", "database": "fail"}))
        assert "nodetracker_api_database_up 0.0\n" in service.read_metrics()
        assert service.summarize(path, "PATCH", change) == AWAY
        server.start()
        service.wait_for_more(fine)
        wait_until(lambda: service.read_health()[0] == 200)
        assert "nodetracker_fleet_nodes" in service.read_metrics()
        running.wait_for("The database is back after ")
        [problem] = list_problems(running)
        assert "The database: " in problem
        server.set_read_only(True)
        assert service.summarize(path, "PATCH", change) == AWAY
        service.wait_for_more(fine)
        server.set_read_only(False)
        assert service.summarize(path, "PATCH", change) == fine
        assert server.kill_connections() > 0
        service.wait_for_more(fine)
    assert set(service.seen) == {fine, AWAY}


def test_without_its_broker_all_goes_on(tmp_path):
    programs = Programs(tmp_path)
    programs.make_schema()
    path = f"/v1/services/{fill(programs.connection)}"
    service = Service(tmp_path, programs.connection)
    broker = f"transport_url = rabbit://nobody:secret@127.0.0.1:{find_free_port()}/"
    with service.run(broker) as running:
        assert service.summarize("/v1/nodes") == (200, None, None)
        for is_disabled in (True, False) * 3:
            change = service.summarize(path, "PATCH", {"disabled": is_disabled})
            assert change == (200, None, None)
        warned = 200, {"broker": "warn", "database": "pass"}
        wait_until(lambda: service.read_health() == warned)
        for problem in ("The message broker at ", "Notifications wait: "):
            assert sum(problem in line for line in list_problems(running)) <= 1
        assert len(list_problems(running)) <= 2
