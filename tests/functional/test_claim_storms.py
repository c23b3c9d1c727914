"""Many processes that claim at once, and processes killed in the midst of it.

``NODETRACKER_KILLS=100`` in the environment kills the agent so often; it is a
few times otherwise.
"""

import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.usage import usage_columns
from nodetracker.db import claim_lists, nodes
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim
from nodetracker.model.service import AuditState
from tests.builders import create, make_values, register
from tests.contract.stores import SQL_BACKENDS, make_url
from tests.functional.servers.mariadb import MariaDB
from tests.functional.storm import ADMISSION_POLICY, StormProcess, wait_for_killed
from tests.oracle import COUNTING, check_rows
from tests.programs import Programs

HOST = "host-1"
PROCESSES = 8
KILLS = int(os.environ.get("NODETRACKER_KILLS", "6"))
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
LIMITS = (64_000, 65536, 500 * 1024)  # thousandths of CPUs at a ratio of 4, MiB, MiB
RESERVED_MB = 512

_numbers = itertools.count(1)


class Storm:
    """Claimers side by side; at the end none is left."""

    def __init__(self, directory: Path, connection: str) -> None:
        self._directory = directory
        self._connection = connection
        self.claimers: list[StormProcess] = []

    def begin(self, count: int, *arguments: str) -> None:
        """Start some, and let them go all at once."""
        started = [self._start(*arguments) for _ in range(count)]
        self.claimers += started
        for claimer in started:
            claimer.wait_until_ready()
        for claimer in started:
            claimer.begin()

    def wait(self) -> None:
        """Wait until all have ended by themselves."""
        for claimer in self.claimers:
            claimer.wait(300)

    def kill_one(self, number: int) -> None:
        """Kill one that still runs, if any, in the midst of what it does."""
        running = [claimer for claimer in self.claimers if claimer.process.poll() is None]
        if running:
            running[number % len(running)].kill()

    def _start(self, *arguments: str) -> StormProcess:
        seed = next(_numbers)
        log = self._directory / f"claimer-{seed}"
        return StormProcess(log, self._connection, f"--seed={seed}", *arguments)

    def __enter__(self) -> "Storm":
        return self

    def __exit__(self, *details: object) -> None:
        for claimer in self.claimers:
            claimer.kill()

    def told(self) -> list[dict[str, Any]]:
        """Return all that was told, each claimer's lines in order."""
        return [line for claimer in self.claimers for line in claimer.told()]


def read_at_once(store: SqlStore) -> tuple[list[Any], list[Claim]]:
    """Return the host's nodes and all claims as they were at one moment."""
    with store.engine.connect() as connection:
        if connection.dialect.name != "sqlite":  # whose readers see one moment anyway
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        return nodes.load_nodes(connection, HOST, None), claim_lists.list_claims(connection)


def check_now(store: SqlStore) -> None:
    """Assert that the row is right at this very moment, and claims within the node's limits."""
    records, held = read_at_once(store)
    check_rows(records, held)
    counting = [claim.amounts for claim in held if claim.state.value in COUNTING]
    promised = (
        sum(amounts.vcpu_milli for amounts in counting),
        sum(amounts.memory_mb for amounts in counting) + RESERVED_MB,
        sum(amounts.disk_mb for amounts in counting),
    )
    assert all(mine <= limit for mine, limit in zip(promised, LIMITS, strict=True)), promised


def check_answers(store: SqlStore, told: list[dict[str, Any]]) -> None:
    """Assert that all that was answered is so, and what was not is whole or not at all."""
    found = store.list_claims()
    by_uuid = {claim.uuid: claim for claim in found}
    assert len(by_uuid) == len(found)
    bodies = {line["uuid"]: line["body"] for line in told if line["what"] == "asked"}
    assert by_uuid.keys() <= bodies.keys()
    by_what: dict[str, set[str]] = {}
    for line in told:
        by_what.setdefault(line["what"], set()).add(line["uuid"])
    granted, refused = by_what.get("granted", set()), by_what.get("refused", set())
    aborting = by_what.get("aborting", set())
    assert granted <= by_uuid.keys()
    assert not refused & by_uuid.keys()
    for name, claim in by_uuid.items():
        request = parse_claim_request(bodies[name])
        assert (claim.workload, claim.amounts) == (request.workload, request.amounts)
        assert store.create_claim(request, HOST, "node-1", ADMISSION_POLICY) == claim
        if name in by_what.get("aborted", set()):
            assert claim.reason == "aborted"
        elif name not in aborting:
            assert claim.state.value in COUNTING
        if name in by_what.get("confirmed", set()) - aborting:
            assert claim.state.value == "confirmed"
    assert store.list_claims() == found


@pytest.mark.parametrize("backend", SQL_BACKENDS)
def test_of_many_processes_exactly_as_many_succeed_as_fit(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    connection = make_url(backend, request, tmp_path)
    store = open_store(DatabaseSettings(connection))
    agent = register(store, HOST)
    store.report_state(agent, 1, AuditState())
    reserved = {"memory_mb": RESERVED_MB}
    values = make_values(
        vcpus=16, memory_mb=65536, local_gb=500, cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0, disk_allocation_ratio=1.0, reserved=reserved, overhead={},
        facts={}, **usage_columns(Amounts(), reserved, 65536, 500),
    )  # fmt: skip
    store.apply_changes(agent, [create(agent, "node-1", values)], 60)
    with Storm(tmp_path, connection) as storm:
        storm.begin(PROCESSES, "--same=12")
        storm.wait()
        told = storm.told()
    granted = [line for line in told if line["what"] == "granted"]
    refused = [line for line in told if line["what"] == "refused"]
    assert (len(granted), len(refused)) == (64, PROCESSES * 12 - 64)
    assert {tuple(line["reasons"]) for line in refused} == {
        ("Free vcpu 0.00 VCPU < requested 1 VCPU",)
    }
    check_now(store)
    check_answers(store, told)
    (record,) = store.load_nodes(HOST)
    assert (record.values.vcpus_used, record.values.memory_mb_used) == (64, 512 + 6400)
    store.close()


class StormedHost:
    """An agent's programs, the storm on its node, and a client that looks on."""

    def __init__(self, directory: Path, connection: str) -> None:
        self.programs = Programs(directory, connection, HOST, 3600, update_resources_interval=1)
        self.list_guests([])
        self.store = open_store(DatabaseSettings(connection))
        self.storm = Storm(directory, connection)
        self._random = random.Random(next(_numbers))

    def list_guests(self, guests: list[dict[str, Any]]) -> None:
        """Let the hypervisor have these guests, from one moment to the next."""
        path = self.programs.inventory.with_suffix(".new")
        path.write_text(json.dumps({"nodes": [NODE | {"guests": guests}]}))
        path.rename(self.programs.inventory)

    def shuffle_guests(self) -> None:
        """Let some of the workloads asked for be there as guests, others not."""
        bodies = [line["body"] for line in self.storm.told() if line["what"] == "asked"]
        guests = [
            {
                "uuid": body["workload"]["uuid"],
                "kind": body["workload"].get("kind", "instance"),
                "vcpus": body["resources"]["VCPU"],
                "memory_mb": body["resources"]["MEMORY_MB"],
                "disk_gb": body["disk"]["root_gb"],
            }
            for body in self._random.sample(bodies, min(5, len(bodies)))
        ]
        self.list_guests(guests)

    def settle(self) -> None:
        """Let an agent audit what is left, and check all that was told."""
        for claimer in self.storm.claimers:
            claimer.kill()
        wait_for_killed(self.store)
        check_now(self.store)
        with self.programs.start() as agent:
            agent.wait_for("is ready")
            assert agent.stop() == 0
            assert "Traceback" not in agent.output()
        check_now(self.store)
        check_answers(self.store, self.storm.told())


@pytest.fixture(params=SQL_BACKENDS)
def stormed_host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StormedHost]:
    stormed_host = StormedHost(tmp_path, make_url(request.param, request, tmp_path))
    with stormed_host.storm:
        yield stormed_host
    stormed_host.store.close()


def test_a_storm_of_claims_aborts_and_confirms_beside_an_agent_that_audits(
    stormed_host: StormedHost,
) -> None:
    with stormed_host.programs.start() as agent:
        agent.wait_for("is ready")
        stormed_host.storm.begin(PROCESSES, "--steps=40")
        while any(claimer.process.poll() is None for claimer in stormed_host.storm.claimers):
            check_now(stormed_host.store)
            stormed_host.shuffle_guests()
            time.sleep(0.2)
        stormed_host.storm.wait()
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()
    stormed_host.settle()


def test_claimers_and_agents_that_are_killed_lose_nothing(
    mariadb: MariaDB, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stormed_host = StormedHost(tmp_path, make_url("mariadb", request, tmp_path))
    instants = random.Random(7)
    with stormed_host.storm:
        with stormed_host.programs.start() as agent:
            agent.wait_for("is ready")
        for kill in range(KILLS):
            if kill % 3 == 0:
                stormed_host.storm.begin(2)
            stormed_host.shuffle_guests()
            with stormed_host.programs.start():
                time.sleep(instants.uniform(0.3, 3.0))
                check_now(stormed_host.store)
            check_now(stormed_host.store)  # left as the kill left it
            if kill % 3 == 2:
                stormed_host.storm.kill_one(instants.randrange(8))
                stormed_host.storm.kill_one(instants.randrange(8))
        stormed_host.settle()
    stormed_host.store.close()
