"""Reports to placement: requests and seconds of each kind, and the memory that an agent needs more.

Placement is on SQLite and answers one request at a time.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.ports import AdmissionPolicy
from tests.bench.databases import Row, rss_mib
from tests.functional.placement_host import ReportedHost
from tests.functional.servers.placement import Placement
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until
from tests.stores import SqliteStore
from tests.unit.compute.tracked_host import TickingClock

DATABASES = ()
OPTIONS = {"nodes": 1000, "claims": 1000}

POLICY = AdmissionPolicy(service_down_time=10**6, claim_timeout=600)
LIMIT_SECONDS = 1800
SIZE = {"vcpus": 64, "memory_mb": 10**6, "disk_gb": 1000}


def measure(options: argparse.Namespace, directory: Path) -> Iterator[tuple[str, Row]]:
    """Report nodes, then claims."""
    placement = Placement()
    try:
        for report, costs in _report(directory, placement, options.nodes, options.claims):
            yield "Reports to placement", {"report": report} | costs
        yield "Resident memory of an agent", _measure_memory(directory, placement)
    finally:
        placement.remove()


def _report(
    directory: Path, placement: Placement, nodes: int, claims: int
) -> Iterator[tuple[str, Row]]:
    host = make_host(directory / "nodes", placement)
    inventory = [{"nodename": f"bench-{n}"} | SIZE for n in range(nodes)]
    yield f"first, of {nodes} nodes", run(host, lambda: host.audit(*inventory))
    yield "a steady audit", run(host, host.audit)
    host.restart()
    yield f"restart with {nodes} nodes", run(host, host.audit)
    yield "a refresh", run(host, host.reporter._lists.refresh)
    host.stop()
    host = make_host(directory / "claims", placement)
    host.settle({"nodename": "bench-of-claims"} | SIZE)
    for number in range(claims):
        body = {
            "workload": {"uuid": f"00000000-0000-4000-8000-{number:012d}", "kind": "container"},
            "resources": {"VCPU": 0 if number % 2 else 0.25, "MEMORY_MB": 64},
        }
        host.store.create_claim(parse_claim_request(body), "host-1", "bench-of-claims", POLICY)
    yield f"{claims} claims on one node, one audit", run(host, host.audit)
    yield "a steady audit of these", run(host, host.audit)
    host.stop()


def make_host(directory: Path, placement: Placement) -> ReportedHost:
    """Return a host with a store of its own."""
    directory.mkdir()
    clock = TickingClock()
    store = SqliteStore(clock.now)
    return ReportedHost(directory, placement.configuration(), store, clock, "host-1")


def run(host: ReportedHost, change: Callable[[], object]) -> Row:
    """Make a change; return what it takes until placement has it."""
    before, started = host.count(), time.monotonic()
    change()
    host.wait(LIMIT_SECONDS)
    return {"requests": host.count() - before, "seconds": time.monotonic() - started}


def _measure_memory(directory: Path, placement: Placement) -> Row:
    sizes = {}
    for label, extra in (("without", ""), ("with", placement.configuration())):
        programs = Programs(directory / label, extra=extra)
        programs.make_schema()
        programs.inventory.write_text(
            f"nodes:\n  - {{nodename: memory-{label}, vcpus: 4, memory_mb: 4096, disk_gb: 40}}\n"
        )
        programs.configure(extra=extra, metrics_port=find_free_port(), update_resources_interval=2)
        with programs.start(is_forked=False) as agent:
            agent.wait_for("is ready")
            if extra:
                path = f"/resource_providers?name=memory-{label}"
                wait_until(lambda path=path: placement.get(path)["resource_providers"], 60)
            time.sleep(6)
            sizes[label] = rss_mib(psutil.Process(agent.process.pid))
            agent.stop()
    return {f"{label} placement, MiB": size for label, size in sizes.items()}
