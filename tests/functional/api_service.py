"""The REST service in front of a database that can be away."""

import contextlib
import http.client
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.builders import create, make_guest, register
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, Running, wait_until
from tests.threads import repeating

CLIENTS = 4
AWAY = (503, "nodetracker.database.unavailable", "5")


@dataclass
class Service:
    """nodetracker-api on a database, with a broker that nobody serves.

    Attributes:
        seen: status, code and Retry-After of all requests of `load`.
        down_after: see `Programs`.
    """

    directory: Path
    url: str
    port: int = field(default_factory=find_free_port)
    seen: Counter[tuple[int, str | None, str | None]] = field(default_factory=Counter)
    down_after: int = 60

    def send(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, Any, str | None]:
        """Return status, JSON and Retry-After of one request."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        ) as connection:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            document = json.loads(answer.read() or b"null")
            return answer.status, document, answer.headers["Retry-After"]

    def summarize(self, path: str, method: str = "GET", body: Any = None, **headers: str):
        """Return status, code and Retry-After of one request."""
        status, document, retry_after = self.send(path, method, body, **headers)
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

        def request() -> None:
            for path in ("/v1/nodes", "/v1/services", "/v1/workloads"):
                self.seen[self.summarize(path)] += 1

        # With pauses, so that they leave the servers a processor.
        with repeating(request, 0.02, CLIENTS):
            yield

    def wait_for_more(self, wanted: tuple[int, str | None, str | None]) -> None:
        """Wait until the clients have seen an answer again."""
        before = self.seen[wanted]
        wait_until(lambda: self.seen[wanted] > before + CLIENTS)

    @contextlib.contextmanager
    def run(self, extra: str = "", **options: object) -> Iterator[Running]:
        """Run the service.

        Args:
            extra: further options of other groups.
            options: further ones of its own.
        """
        given = {"port": self.port, "auth_strategy": "noauth", "threads": 4} | options
        group = "\n".join(["[api]", *(f"{name} = {value}" for name, value in given.items())])
        programs = Programs(
            self.directory, self.url, "api", self.down_after, extra=f"{extra}\n{group}"
        )
        with programs.start("nodetracker-api") as running:
            running.wait_for("Serving on")
            yield running
            running.stop()


def fill(url: str) -> str:
    """Add a host with a node; return the uuid of its service."""
    store = open_store(DatabaseSettings(url))
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1", guests=(make_guest(),))], 60)
    store.close()
    return agent.service_uuid
