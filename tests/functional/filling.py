"""Processes that claim without naming a host until no node has room.

`fill` starts them; `check_filled` asserts that what they did is right.
"""

import multiprocessing
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nodetracker.cmd  # noqa: F401 - keeps eventlet out
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.fleet.scheduler import Scheduler
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.ports import AdmissionPolicy

PROCESSES = 8
ADMISSION_POLICY = AdmissionPolicy(service_down_time=24 * 3600, claim_timeout=24 * 3600)
NODE = {"vcpus": 1, "memory_mb": 65536, "disk_gb": 500}
PER_NODE = 4
"""Claims of one CPU that a node has room for, at the default ratio."""

_START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Filled:
    """What one process was answered.

    Attributes:
        claims: uuid of each claim -> the host that granted it.
        last_started_at: when it requested the last claim that was granted.
        refused_at: when the refusal that ended it was answered.
        reasons: of that refusal.
        slowest_seconds: the slowest claim that was granted.
    """

    claims: dict[str, str]
    last_started_at: float
    refused_at: float
    reasons: tuple[str, ...]
    slowest_seconds: float


def fill(url: str, processes: int = PROCESSES) -> list[Filled]:
    """Let processes claim one CPU after the other until each is refused."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    answers: Any = context.SimpleQueue()
    barrier = context.Barrier(processes)
    started = [
        context.Process(target=_fill_one, args=(url, barrier, answers)) for _ in range(processes)
    ]
    for process in started:
        process.start()
    try:
        return [answers.get() for _ in started]
    finally:
        for process in started:
            process.kill()
            process.join()


def _fill_one(url: str, barrier: Any, answers: Any) -> None:
    store = open_store(DatabaseSettings(url))
    store.now()  # connected before all start
    scheduler = Scheduler(store, ADMISSION_POLICY)
    claims: dict[str, str] = {}
    slowest = last_started_at = 0.0
    barrier.wait(_START_SECONDS)
    while True:
        started_at = time.monotonic()
        name = str(uuid.uuid4())
        body = {"uuid": name, "workload": {"uuid": name}, "resources": {"VCPU": 1}}
        try:
            claim = scheduler.create_claim(parse_claim_request(body))
        except ClaimRefusedError as error:
            reasons = tuple(error.reasons)
            break
        claims[claim.uuid] = claim.host
        slowest, last_started_at = max(slowest, time.monotonic() - started_at), started_at
    answers.put(Filled(claims, last_started_at, time.monotonic(), reasons, slowest))
    store.close()


def check_filled(store: SqlStore, nodes: int, filled: Sequence[Filled]) -> None:
    """Assert that all nodes are full, and that none was refused while there was room."""
    answered = {name: host for one in filled for name, host in one.claims.items()}
    assert len(answered) == nodes * PER_NODE
    assert {claim.uuid: claim.host for claim in store.list_claims()} == answered
    assert set(Counter(answered.values()).values()) == {PER_NODE}
    assert {record.values.vcpus_used for record in store.list_nodes()} == {PER_NODE}
    # The clock is the machine's, the same for all processes.
    assert min(one.refused_at for one in filled) > max(one.last_started_at for one in filled)
    full = f"cpu: {nodes} of {nodes} nodes"
    for one in filled:
        assert (
            any(reason.endswith(full) for reason in one.reasons)
            or "Free vcpu 0.00" in one.reasons[0]
        ), one.reasons
    print(f"slowest claim: {max(one.slowest_seconds for one in filled):.2f} s")
