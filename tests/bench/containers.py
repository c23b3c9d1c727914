"""What an audit of a container host costs: requests to a real dockerd, and seconds."""

import dataclasses
import shutil
import threading
import time
from pathlib import Path

from nodetracker.host.roots import Roots
from nodetracker.model.event import NodeEvent
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
        first: nothing is known.
        steady: nothing has changed, events are told.
        one_changed: one container was renamed, as an event said.
    """

    containers: int
    first_requests: int
    first_seconds: float
    steady_requests: int
    steady_seconds: float
    one_changed_requests: int
    one_changed_seconds: float


def can_measure() -> bool:
    """Tell whether the machine has what a dockerd needs."""
    return all(shutil.which(name) for name in NEEDED)


def measure_containers(directory: Path, containers: int) -> ContainerCosts:
    """Measure readings of a host with so many containers that were created."""
    engine = Dockerd()
    client = engine.client()
    requests = EngineClient(engine.url, 10)
    environment = DriverEnvironment("bench", str(directory), Roots(), ProbeRunner(60))
    driver = DockerDriver(environment, requests)
    told = threading.Event()

    def tell(event: NodeEvent) -> None:
        told.set()

    def read() -> tuple[int, float]:
        before, began = requests.request_count, time.monotonic()
        snapshot = driver.get_available_resource("bench")
        seconds = time.monotonic() - began
        assert snapshot.guests.value is not None
        assert len(snapshot.guests.value.guests) == containers
        return requests.request_count - before, seconds

    try:
        config = client.create_host_config(network_mode="none", mem_limit="64m")
        names = [f"bench-{number}" for number in range(containers)]
        for name in names:
            client.create_container(IMAGE, SLEEP, name=name, host_config=config)
        driver.events(tell)
        told.wait(10)
        first = read()
        read()
        steady = read()
        told.clear()
        client.rename(names[0], "renamed")
        told.wait(10)
        return ContainerCosts(containers, *first, *steady, *read())
    finally:
        driver.close()
        client.close()
        engine.remove()
