"""Measure the costs of an audit of a container host: requests to a real dockerd, and seconds."""

import dataclasses
import shutil
import threading
import time
from pathlib import Path

from nodetracker.host.roots import Roots
from nodetracker.model.audit import NodeEvent
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.driver import DockerDriver
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.functional.servers.engines import IMAGE, SLEEP, Dockerd

NEEDED = ("dockerd", "containerd", "runc", "busybox", "tini", "unshare")


@dataclasses.dataclass(frozen=True, slots=True)
class ContainerCosts:
    """Requests and seconds of one reading each.

    Attributes:
        first: nothing is cached.
        steady: nothing has changed, events are received.
        one_changed: one container was renamed, as an event reported.
    """

    containers: int
    first_requests: int
    first_seconds: float
    steady_requests: int
    steady_seconds: float
    one_changed_requests: int
    one_changed_seconds: float


def can_measure() -> bool:
    """Return whether the machine has what a dockerd needs."""
    return all(shutil.which(name) for name in NEEDED)


def measure_containers(directory: Path, containers: int) -> ContainerCosts:
    """Measure readings of a host with this number of created containers."""
    engine = Dockerd()
    client = engine.client()
    requests = EngineClient(engine.url, 10)
    environment = DriverEnvironment("bench", str(directory), Roots(), ProbeRunner(60))
    driver = DockerDriver(environment, requests)
    has_event = threading.Event()

    def note_event(event: NodeEvent) -> None:
        has_event.set()

    def read() -> tuple[int, float]:
        before, started_at = requests.request_count, time.monotonic()
        snapshot = driver.get_available_resource("bench")
        seconds = time.monotonic() - started_at
        assert snapshot.guests.value is not None
        assert len(snapshot.guests.value.guests) == containers
        return requests.request_count - before, seconds

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
        return ContainerCosts(containers, *first, *steady, *read())
    finally:
        driver.close()
        client.close()
        engine.remove()
