"""Measure what reports to placement cost, and print it as a table.

`python -m tests.bench.placement [--nodes N] [--claims N]`: requests and
seconds of a first report, a restart, steady audits and many claims at once
against a placement on SQLite that answers one request at a time, and the
memory that an agent needs in addition.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.ports import AdmissionPolicy
from tests.functional.placement_host import ReportedHost
from tests.functional.servers.placement import Placement
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until
from tests.stores import SqliteStore
from tests.unit.compute.test_resource_tracker import Clock

POLICY = AdmissionPolicy(service_down_time=10**6, claim_timeout=600)
LIMIT_SECONDS = 1800
SIZE = {"vcpus": 64, "memory_mb": 10**6, "disk_gb": 1000}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placement")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--claims", type=int, default=1000)
    arguments = parser.parse_args()
    placement = Placement()
    try:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), placement, arguments.nodes, arguments.claims)
            measure_memory(Path(name), placement)
    finally:
        placement.remove()


def measure(directory: Path, placement: Placement, nodes: int, claims: int) -> None:
    """Print requests and seconds of each kind of report."""
    host = make_host(directory / "nodes", placement)
    inventory = [{"nodename": f"bench-{n}"} | SIZE for n in range(nodes)]
    run(host, f"first report of {nodes} nodes", lambda: host.audit(*inventory))
    run(host, "a steady audit", host.audit)
    host.restart()
    run(host, f"restart with {nodes} nodes", host.audit)
    run(host, "a refresh", host.reporter._listing.refresh)
    host.stop()
    measure_claims(make_host(directory / "claims", placement), claims)


def measure_claims(host: ReportedHost, claims: int) -> None:
    """Print requests and seconds of many claims on one node."""
    host.settle({"nodename": "bench-of-claims"} | SIZE)
    for number in range(claims):
        body = {
            "workload": {"uuid": f"00000000-0000-4000-8000-{number:012d}", "kind": "container"},
            "resources": {"VCPU": 0 if number % 2 else 0.25, "MEMORY_MB": 64},
        }
        host.store.create_claim(parse_claim_request(body), "host-1", "bench-of-claims", POLICY)
    run(host, f"{claims} claims on one node, one audit", host.audit)
    run(host, "a steady audit", host.audit)
    host.stop()


def make_host(directory: Path, placement: Placement) -> ReportedHost:
    """Return a host with a store of its own."""
    directory.mkdir()
    clock = Clock()
    store = SqliteStore(clock.now)
    return ReportedHost(directory, placement.configuration(), store, clock, "host-1")


def run(host: ReportedHost, label: str, change: Callable[[], object]) -> None:
    """Make a change, and print how long placement takes to have it."""
    before, started = host.count(), time.monotonic()
    change()
    host.wait(LIMIT_SECONDS)
    seconds, requests = time.monotonic() - started, host.count() - before
    print(f"{label:40} {requests:6} requests {seconds:8.2f} s", flush=True)


def measure_memory(directory: Path, placement: Placement) -> None:
    """Print the resident memory of an agent with and without placement."""
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
            sizes[label] = psutil.Process(agent.process.pid).memory_info().rss / 2**20
            agent.stop()
    more = sizes["with"] - sizes["without"]
    print(f"RSS of an agent: {sizes['without']:.1f} MiB, with placement {more:.1f} MiB more")


if __name__ == "__main__":
    main()
