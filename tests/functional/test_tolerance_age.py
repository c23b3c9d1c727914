"""Answers about losses are renewed while claims and moves change the fleet.

``NODETRACKER_MINUTES=10`` in the environment lets it go on for as long, with an interval of 20 s.
"""

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from nodetracker.db.store import SqlStore
from nodetracker.model.claim import Claim
from nodetracker.model.errors import NodetrackerError
from nodetracker.ports import AdmissionPolicy
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ask, make_guest
from tests.functional.api_service import Service
from tests.programs import Programs, wait_until

MINUTES = float(os.environ.get("NODETRACKER_MINUTES", "0.25"))
INTERVAL = 20 if MINUTES >= 1 else 2
HOSTS = 5
CLIENTS = 2
POLICY = AdmissionPolicy(service_down_time=60, claim_timeout=600)


def change_fleet(store: SqlStore, seed: int, is_over: threading.Event, seen: Counter[str]) -> None:
    """Claim, move and abort at random until it is over."""
    source, scheduler = random.Random(seed), Scheduler(store, POLICY)
    held: list[Claim] = []
    while not is_over.is_set():
        choice = source.random()
        with contextlib.suppress(NodetrackerError):  # refused, or in conflict with the others
            if held and (len(held) > 20 or choice < 0.4):
                store.abort_claim(held.pop().uuid)
                seen["aborts"] += 1
            elif held and choice < 0.6:
                move = {"type": "migration", "source_claim": held[-1].uuid}
                request = ask(held[-1].workload.uuid, VCPU=1, MEMORY_MB=64, migration=move)
                host = f"host-{source.randrange(HOSTS)}"
                store.revert_migration(store.create_migration(request, host, "n", POLICY).uuid)
                seen["moves"] += 1
            else:
                held.append(scheduler.create_claim(ask(VCPU=1, MEMORY_MB=64)))
                seen["claims"] += 1


def make_host(directory: Path, connection: str, number: int) -> Programs:
    """Return the programs of a host with a node of three guests."""
    guests = [
        {"uuid": make_guest(10 * number + n).uuid, "vcpus": 1, "memory_mb": 512, "disk_gb": 1}
        for n in range(3)
    ]
    programs = Programs(directory, connection, f"host-{number}")
    node = {"nodename": "n", "vcpus": 16, "memory_mb": 16384, "disk_gb": 100, "guests": guests}
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
    return programs


@pytest.mark.timeout(60 * (MINUTES + 5))
def test_no_answer_is_older_than_two_intervals_without_saying_so(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    service, seen, is_over = (
        Service(tmp_path / "api", connection),
        Counter[str](),
        threading.Event(),
    )
    clients = [
        threading.Thread(target=change_fleet, args=(store, seed, is_over, seen))
        for seed in range(CLIENTS)
    ]
    ages: list[float] = []
    with contextlib.ExitStack() as stack:
        for number in range(HOSTS):
            programs = make_host(tmp_path / f"host-{number}", connection, number)
            stack.enter_context(programs.start()).wait_for("is ready")
        stack.enter_context(service.run(f"[scheduler]\ntolerance_interval = {INTERVAL}"))
        wait_until(lambda: len(store.list_tolerances()) == HOSTS)
        for client in clients:
            client.start()
        stack.callback(is_over.set)
        ends_at = time.monotonic() + 60 * MINUTES
        while time.monotonic() < ends_at:
            time.sleep(INTERVAL / 10)
            now = store.now()
            status, found, _ = service.send("/v1/tolerance")
            assert (status, len(found["hosts"])) == (200, HOSTS)
            age = (now - datetime.fromisoformat(found["checked_at"])).total_seconds()
            assert age <= 2 * INTERVAL or found["is_stale"]
            ages.append(age)
        is_over.set()
        for client in clients:
            client.join()
    late = sum(age > 2 * INTERVAL for age in ages)
    print(f"{dict(seen)}; oldest of {len(ages)} {max(ages):.1f} s, {late} said to be too old")
    assert min(seen[name] for name in ("claims", "aborts", "moves")) > 0
