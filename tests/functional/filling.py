"""Processes that claim without naming a host until no node has room.

`fill` starts them; `check_filled` asserts that what they did is right.
"""

import multiprocessing
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nodetracker.cmd  # noqa: F401 - keeps eventlet out
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.settings import SchedulerSettings
from nodetracker.ports import AdmissionPolicy
from nodetracker.usecases.scheduler import Scheduler

PROCESSES = 8
ADMISSION_POLICY = AdmissionPolicy(
    service_down_time=24 * 3600,
    claim_timeout=24 * 3600,
    aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),))},
)
NODE = {"vcpus": 1, "memory_mb": 65536, "disk_gb": 500}
PER_NODE = 4
"""Claims of one CPU that a node has room for, at the default ratio; and devices of a rare one."""

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


def fill(
    url: str, body: Mapping[str, Any], nodes_to_weigh: int = 100, processes: int = PROCESSES
) -> list[Filled]:
    """Let processes claim what the body has, one after the other, until each is refused."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    answers: Any = context.SimpleQueue()
    barrier = context.Barrier(processes)
    started = [
        context.Process(target=_fill_one, args=(url, body, nodes_to_weigh, barrier, answers))
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    try:
        return [answers.get() for _ in started]
    finally:
        for process in started:
            process.kill()
            process.join()


def _fill_one(
    url: str, body: Mapping[str, Any], nodes_to_weigh: int, barrier: Any, answers: Any
) -> None:
    store = open_store(DatabaseSettings(url))
    store.now()  # connected before all start
    settings = SchedulerSettings(nodes_to_weigh=nodes_to_weigh)
    scheduler = Scheduler(store, ADMISSION_POLICY, settings)
    claims: dict[str, str] = {}
    slowest = last_started_at = 0.0
    barrier.wait(_START_SECONDS)
    while True:
        started_at = time.monotonic()
        name = str(uuid.uuid4())
        own = {"uuid": name, "workload": {"uuid": name}}
        try:
            claim = scheduler.create_claim(parse_claim_request({**body, **own}))
        except ClaimRefusedError as error:
            reasons = tuple(error.reasons)
            break
        claims[claim.uuid] = claim.host
        slowest, last_started_at = max(slowest, time.monotonic() - started_at), started_at
    answers.put(Filled(claims, last_started_at, time.monotonic(), reasons, slowest))
    store.close()


def check_filled(store: SqlStore, hosts: Collection[str], filled: Sequence[Filled]) -> None:
    """Assert that these hosts are full, and that none was refused while there was room."""
    answered = {name: host for one in filled for name, host in one.claims.items()}
    assert Counter(answered.values()) == dict.fromkeys(hosts, PER_NODE)
    assert {claim.uuid: claim.host for claim in store.list_claims()} == answered
    used = {record.host: record.values.vcpus_used for record in store.list_nodes()}
    assert len({used[host] for host in hosts}) == 1
    assert {amount for host, amount in used.items() if host not in hosts} <= {0}
    # The clock is the machine's, the same for all processes.
    assert min(one.refused_at for one in filled) > max(one.last_started_at for one in filled)
    print(f"slowest claim: {max(one.slowest_seconds for one in filled):.2f} s")
