"""What clients are answered while a PostgreSQL primary fails, is replaced and comes back."""

import json
import signal
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.model.errors import StoreUnavailableError
from tests.chaos.judge import judge
from tests.ha.load import Clients, Samples, World, go_through, wait_for_claim, wait_for_heartbeats
from tests.ha.postgresql import NAME, Cluster
from tests.programs import wait_until

SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
HEARTBEATS = 15
"""In the time of how many heartbeats of the first host all others have sent one, too."""


class PrimarySamples(Samples):
    """Samples of the server that is the primary."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.primary.url(NAME))
        self._cluster = cluster

    def take(self, is_final: bool = False) -> bool:
        """Take one, unless the primary is replaced meanwhile."""
        primary = self._cluster.primary
        if self._url != primary.url(NAME):
            self._url, self._database = primary.url(NAME), None
        is_taken = super().take(is_final)
        if self._cluster.primary is primary:
            return is_taken
        if is_taken:
            self.taken.pop()
        return False


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One whose commits wait for the replica, or not."""
    made = Cluster(request.param == SYNCHRONOUS)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world"), [cluster.url]) as world:
        yield world
        world.stop()


def switch_over(cluster: Cluster, clients: Clients) -> Callable[[], object]:
    """Stop the primary, which sends the replica all that it has, and let that replace it."""
    cluster.primary.stop()
    cluster.promote()
    return cluster.rejoin


def kill(cluster: Cluster, clients: Clients) -> Callable[[], object]:
    cluster.primary.process.cut_power()
    cluster.promote()
    return cluster.rejoin


def freeze(cluster: Cluster, clients: Clients) -> Callable[[], object]:
    """Let the primary hang while the replica replaces it, until it is ended."""
    former = cluster.primary
    former.process.freeze()
    cluster.promote()

    def mend() -> None:
        former.process.stop(signal.SIGQUIT)
        cluster.rejoin()

    return mend


def come_back(cluster: Cluster, clients: Clients) -> Callable[[], object]:
    """Start a primary that was killed as it was, once programs use the newer one."""
    former = cluster.primary
    kill(cluster, clients)
    wait_for_claim(clients)
    cluster.start_beside(former)
    cluster.primary.kill_connections()  # so that all open new ones

    def mend() -> None:
        with (
            closing(Database(DatabaseSettings(former.url(NAME)))) as late,
            pytest.raises(StoreUnavailableError, match="has replaced it"),
        ):
            late.read(lambda connection: connection.scalar(sa.text("SELECT 1")))
        former.stop()
        cluster.rejoin()

    return mend


FAULTS = {
    "switched over": switch_over,
    "killed": kill,
    "killed, and back as a second primary": come_back,
    "frozen until it is fenced": freeze,
}


@pytest.mark.parametrize("cluster", [SYNCHRONOUS], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_sold_twice_and_all_hosts_come_back(
    cluster: Cluster, world: World, report: list[str], fault: str
) -> None:
    outcome = go_through(
        world, PrimarySamples(cluster), fault, lambda: FAULTS[fault](cluster, world.clients)
    )
    report.append(f"{outcome}; the promotion took {cluster.promotion_seconds:.1f} s")
    assert outcome.heartbeats <= HEARTBEATS


@pytest.mark.parametrize("cluster", [ASYNCHRONOUS], indirect=True)
def test_an_asynchronous_replica_loses_nothing_when_the_primary_is_stopped(
    cluster: Cluster, world: World
) -> None:
    go_through(world, PrimarySamples(cluster), "", lambda: switch_over(cluster, world.clients))


@pytest.mark.parametrize("cluster", [ASYNCHRONOUS], indirect=True)
def test_what_an_asynchronous_replica_had_not_received_is_lost_and_hosts_go_on(
    cluster: Cluster, world: World
) -> None:
    kept = [make_claim(world) for _ in range(3)]
    cluster.replica.stop()  # which sends no more
    lost = [make_claim(world) for _ in range(3)]
    began = time.monotonic()
    cluster.primary.process.cut_power()
    cluster.replica.start()
    cluster.promote()
    promoted = {"event": "restore", "at": began, "until": time.monotonic()}
    samples = PrimarySamples(cluster)
    with samples.run():
        wait_until(samples.take)
        wait_for_heartbeats(samples)
        wait_until(lambda: send(world, "GET", f"/v1/claims/{kept[0]}") == 200)
        assert [send(world, "GET", f"/v1/claims/{name}") for name in kept] == [200] * 3
        assert [send(world, "GET", f"/v1/claims/{name}") for name in lost] == [404] * 3
        make_claim(world)
        cluster.rejoin()
    found = judge([promoted], samples.taken)  # which does not know what was asked for
    assert [line for line in found if not line.startswith("not asked for")] == []


def make_claim(world: World) -> str:
    name = str(uuid.uuid4())
    body = {
        "uuid": name,
        "workload": {"uuid": str(uuid.uuid4())},
        "resources": {"MEMORY_MB": 1},
    }
    wait_until(lambda: send(world, "POST", "/v1/claims", body) in (200, 201))
    return name


def send(world: World, method: str, path: str, body: Any = None) -> int:
    """Send a request to one of the services; return the status."""
    content = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{world.ports[0]}{path}"
    try:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
