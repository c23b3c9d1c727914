"""Readings of a container host: requests to a real dockerd, and seconds.

First nothing is cached, then nothing has changed, then one container was renamed, as an event
reported.
"""

import argparse
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from nodetracker.model.audit import NodeEvent
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.driver import DockerDriver
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.bench.databases import Row
from tests.functional.servers.engines import IMAGE, SLEEP, Dockerd

T = TypeVar("T")

NEEDED = ("dockerd", "containerd", "runc", "busybox", "tini", "unshare")


DATABASES = ()
OPTIONS = {"containers": [1, 200]}


def measure(options: argparse.Namespace, directory: Path) -> Iterator[tuple[str, Row]]:
    """Read hosts with these numbers of created containers; none on a machine without a dockerd."""
    if not all(shutil.which(name) for name in NEEDED):
        return
    for containers in options.containers:
        for reading, (requests, seconds) in _measure(directory, containers).items():
            row: Row = {"containers": containers, "reading": reading, "requests": requests}
            yield "Readings of a dockerd", row | {"seconds": seconds}


class CountingClient(EngineClient):
    """Counts its requests."""

    count = 0

    def _call_once(self, call: Callable[[Any], T]) -> T:
        self.count += 1
        return super()._call_once(call)

    def _connect(self) -> Any:
        self.count += 1
        return super()._connect()


def _measure(directory: Path, containers: int) -> dict[str, tuple[int, float]]:
    engine = Dockerd()
    client = engine.client()
    requests = CountingClient(engine.url, 10)
    environment = DriverEnvironment("bench", str(directory), Roots(), ProbeRunner(60))
    driver = DockerDriver(environment, requests)
    has_event = threading.Event()

    def note_event(event: NodeEvent) -> None:
        has_event.set()

    def read() -> tuple[int, float]:
        before, started_at = requests.count, time.monotonic()
        snapshot = driver.get_available_resource("bench")
        seconds = time.monotonic() - started_at
        assert snapshot.guests.value is not None
        assert len(snapshot.guests.value.guests) == containers
        return requests.count - before, seconds

    try:
        config = client.create_host_config(network_mode="none", mem_limit="64m")
        names = [f"bench-{number}" for number in range(containers)]
        for name in names:
            client.create_container(IMAGE, SLEEP, name=name, host_config=config)
        driver.events(note_event)
        has_event.wait(10)
        first = read()
        read()
        steady = read()
        has_event.clear()
        client.rename(names[0], "renamed")
        has_event.wait(10)
        return {"first": first, "steady": steady, "one changed": read()}
    finally:
        driver.close()
        client.close()
        engine.remove()
