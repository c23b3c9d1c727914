"""Audits of a real libvirtd whose domains do not run: round trips, statements and time."""

import argparse
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.db.store import SqlStore
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import AgentKey
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.connection import ConnectionTimes
from nodetracker.virt.libvirt.driver import LibvirtDriver
from nodetracker.virt.libvirt.types import HypervisorEndpoint, LibvirtSettings, parse_endpoints
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.bench.databases import Database, Row
from tests.builders import make_incarnation, take_service
from tests.functional.servers.libvirtd import Libvirtd, domain_xml, find_missing
from tests.statements import count_statements

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HypervisorCosts:
    """One audit of a hypervisor's only node, the first one and a steady one.

    Attributes:
        statements, writes: of the steady one.
    """

    domains: int
    first_round_trips: int
    first_seconds: float
    steady_round_trips: int
    steady_seconds: float
    steady_cpu_seconds: float
    statements: int
    writes: int


DATABASES = ("sqlite",)
OPTIONS = {"domains": [0, 200, 1000]}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Audit libvirtds with these numbers of domains; none where it is not installed."""
    for domains in [] if find_missing() else options.domains:
        libvirtd = Libvirtd()
        try:
            define_domains(libvirtd, domains)
            costs = measure_hypervisor(libvirtd, database.store, database.directory)
            yield "Audits of a libvirtd", asdict(costs)
        finally:
            libvirtd.remove()


def define_domains(libvirtd: Libvirtd, count: int) -> None:
    """Define this number of domains over one connection."""
    import libvirt

    connection = libvirt.open(libvirtd.uri)
    for number in range(count):
        name = f"bench-{number}"
        connection.defineXML(domain_xml(name, str(uuid.uuid5(uuid.NAMESPACE_DNS, name))))
    connection.close()


def measure_hypervisor(libvirtd: Libvirtd, store: SqlStore, directory: Path) -> HypervisorCosts:
    """Audit a hypervisor as it is, twice; the store has a schema."""
    trips = [0]
    driver = _make_driver(libvirtd, directory, trips)
    driver.init_host()
    host = f"bench-{uuid.uuid4()}"
    service = take_service(store, host, make_incarnation(agent_id=str(uuid.uuid4())))
    agent = AgentKey(
        host, COMPUTE_BINARY, service.incarnation.agent_id, service.epoch, service.uuid
    )
    settings = AgentSettings(host=host, state_path=str(directory), policy=Policy())
    tracker = ResourceTracker(settings, driver, store)
    driver.get_available_nodes()  # waits until it is connected
    try:
        first_trips, first_seconds, _ = _measure(lambda: tracker.audit(agent), trips)
        (domains,) = (len(record.guests) for record in store.load_nodes(host))
        with count_statements(store) as seen:
            steady_trips, seconds, cpu = _measure(lambda: tracker.audit(agent), trips)
    finally:
        driver.close()
    return HypervisorCosts(
        domains=domains,
        first_round_trips=first_trips,
        first_seconds=first_seconds,
        steady_round_trips=steady_trips,
        steady_seconds=seconds,
        steady_cpu_seconds=cpu,
        statements=len(seen),
        writes=sum(not text.lstrip().upper().startswith("SELECT") for text in seen.statements),
    )


def _measure(audit: Callable[[], Any], trips: list[int]) -> tuple[int, float, float]:
    """Return round trips, seconds and CPU seconds of one audit that must be good."""
    before, started_at, cpu = trips[0], time.monotonic(), time.process_time()
    report = audit()
    assert report.is_good, report
    return trips[0] - before, time.monotonic() - started_at, time.process_time() - cpu


def _make_driver(libvirtd: Libvirtd, directory: Path, trips: list[int]) -> LibvirtDriver:
    from nodetracker.virt.libvirt.client import LibvirtClient, open_client

    class CountingClient(LibvirtClient):
        def _call_exclusively(self, call: Callable[[], T]) -> T:
            trips[0] += 1
            return super()._call_exclusively(call)

        def call_unless_missing(self, call: Callable[[], T]) -> T | None:
            trips[0] += 1  # the look-up before the document
            return super().call_unless_missing(call)

    def open_(endpoint: HypervisorEndpoint) -> LibvirtClient:
        return CountingClient(endpoint, open_client(endpoint)._connection)

    environment = DriverEnvironment("bench", str(directory), Roots(), ProbeRunner(20.0))
    return LibvirtDriver(
        parse_endpoints([libvirtd.uri]),
        environment,
        LibvirtSettings(),
        ConnectionTimes(20.0, 5, 3),
        open_,
    )
