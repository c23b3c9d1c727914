"""Eight clients of nodetracker-api that claim at once, beside the command line and an agent."""

import contextlib
import http.client
import itertools
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from tests.contract.stores import SQL_BACKENDS, make_url
from tests.functional.servers.process import find_free_port
from tests.functional.storm import wait_for_killed
from tests.oracle import check_rows
from tests.programs import Programs, Running, wait_until

CLIENTS = 8
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
VCPUS = 64  # at a ratio of 4
PLACES = ({}, {"host": "host-1"}, {"host": "host-1", "nodename": "node-1"})


class Cloud:
    """A host's agent and nodetracker-api on one database, and a client that looks on."""

    def __init__(self, directory: Path, connection: str) -> None:
        self.port = find_free_port()
        self.programs = Programs(directory, connection, down_after=3600)
        self.programs.configure(
            f"[api]\nport = {self.port}\nthreads = {CLIENTS}\nauth_strategy = noauth\n"
            "database_timeout = 120",
            update_resources_interval=1,
        )
        self.programs.inventory.write_text(json.dumps({"nodes": [NODE]}))
        self.store: SqlStore = open_store(DatabaseSettings(connection))

    def start_api(self) -> Running:
        running = self.programs.start("nodetracker-api")
        running.wait_for("Serving on")
        return running

    def post(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of a claim.

        Raises:
            OSError, http.client.HTTPException: no answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/claims", json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def claim_by_command(self, number: int, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the claim that the command line prints, None if it is refused."""
        path = self.programs.directory / f"request-{number}.json"
        path.write_text(json.dumps(body))
        done = self.programs.manage("claim", "create", str(path), "-f", "json")
        assert done.returncode == 0 or "VCPU" in done.stderr or "cpu:" in done.stderr, done.stderr
        return None if done.returncode else json.loads(done.stdout)

    def check(self) -> None:
        """Assert that the row follows from the claims, which fit the node."""
        claims = self.store.list_claims()
        check_rows(self.store.load_nodes("host-1"), claims)
        assert sum(claim.amounts.vcpu_milli for claim in claims if claim.is_active) <= VCPUS * 1000


@pytest.fixture
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path, make_url(request.param, request, tmp_path))
    with cloud.programs.start() as agent:
        agent.wait_for("is ready")
        yield cloud
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()
    cloud.store.close()


def make_bodies(count: int, vcpus: int) -> list[dict[str, Any]]:
    places = itertools.cycle(PLACES)
    return [
        {
            "uuid": str(uuid.uuid4()),
            "workload": {"uuid": str(uuid.uuid4())},
            "resources": {"VCPU": vcpus, "MEMORY_MB": 100},
            **next(places),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("cloud", SQL_BACKENDS, indirect=True)
def test_exactly_as_many_are_granted_as_fit_and_a_uuid_has_one_claim(cloud: Cloud) -> None:
    shared, of_commands = make_bodies(VCPUS, 1), make_bodies(4, 1)
    start = threading.Barrier(CLIENTS + 1)

    def claim_half(number: int) -> list[tuple[int, dict[str, Any]]]:
        """Claim what another client claims at the same time."""
        start.wait()
        return [cloud.post(body) for body in shared[number // 2 :: CLIENTS // 2]]

    with cloud.start_api() as api, ThreadPoolExecutor(CLIENTS) as pool:
        halves = [pool.submit(claim_half, number) for number in range(CLIENTS)]
        start.wait()
        printed = [cloud.claim_by_command(*item) for item in enumerate(of_commands)]
        answers = [half.result() for half in halves]
        repeated = [cloud.post(body) for body in shared]
        assert api.stop() == 0
        assert "Traceback" not in api.output()
    granted: dict[str, list[dict[str, Any]]] = {}
    for status, answer in itertools.chain(*answers, repeated):
        if status == 409:
            assert answer["errors"][0]["code"] == "nodetracker.claim.refused"
            assert "cpu" in answer["errors"][0]["reasons"][0]
        else:
            granted.setdefault(answer["uuid"], []).append(answer)
    created = [answer["uuid"] for status, answer in itertools.chain(*answers) if status == 201]
    assert sorted(created) == sorted(granted)  # each once, whoever else sent it
    assert all(claim == same[0] for same in granted.values() for claim in same)
    assert {len(same) for same in granted.values()} == {3}
    assert len(granted) + sum(claim is not None for claim in printed) == VCPUS
    assert granted.keys() <= {claim.uuid for claim in cloud.store.list_claims()}
    cloud.check()


@pytest.mark.parametrize("cloud", ["sqlite", "mariadb"], indirect=True)
def test_a_kill_of_the_api_loses_no_claim_that_was_answered(cloud: Cloud) -> None:
    answered: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []

    def claim_until_it_is_gone(bodies: list[dict[str, Any]]) -> None:
        for body in bodies:
            try:
                status, answer = cloud.post(body)
            except (OSError, http.client.HTTPException):
                unanswered.append(body)
                return
            assert status == 201, answer
            answered.append(answer)

    with cloud.start_api() as api, ThreadPoolExecutor(CLIENTS) as pool:
        storm = [pool.submit(claim_until_it_is_gone, make_bodies(80, 0)) for _ in range(CLIENTS)]
        wait_until(lambda: len(answered) >= 2 * CLIENTS)
        api.process.kill()
        for client in storm:
            client.result()
    assert unanswered
    wait_for_killed(cloud.store)
    before = {claim.uuid for claim in cloud.store.list_claims()}
    assert {claim["uuid"] for claim in answered} <= before
    cloud.check()
    with cloud.start_api():
        for body in unanswered:
            status, answer = cloud.post(body)
            assert status == (200 if body["uuid"] in before else 201), answer
    assert {claim.uuid for claim in cloud.store.list_claims()} == {
        item["uuid"] for item in (*answered, *unanswered)
    }
    cloud.check()
