"""nodetracker-api on databases that do not answer: it does in time; the same request finds out."""

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.process.time_limit import limit_database
from tests.functional.api_service import AWAY, Service, fill
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import add_options
from tests.programs import Programs, Running, wait_until

SECONDS = 3  # [api] database_timeout
LONG = {"Prefer": "wait=60"}  # of what the database carries out, on a busy machine
NEVER = 600  # seconds; without a limit of requests, their clients would give up before
UNKNOWN = (503, "nodetracker.database.unknown_outcome", "5")
SERVERS: dict[str, Callable[[], Any]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}


def make_claim(**more: Any) -> dict[str, Any]:
    """Return the body of a claim that fits on the only node many times."""
    resources = {"VCPU": 0, "MEMORY_MB": 1}
    workload = {"uuid": str(uuid.uuid4())}
    return {"uuid": str(uuid.uuid4()), "workload": workload, "resources": resources, **more}


class Writes:
    """Requests of each kind that write, with what they claim."""

    def __init__(self) -> None:
        self.placed = make_claim(host="alpha", nodename="n1")
        self.free = make_claim()
        self.listed = [make_claim() for _ in range(3)]
        self.bodies = [self.placed, self.free, {"claims": self.listed}]

    def list_uuids(self) -> set[str]:
        return {body["uuid"] for body in (self.placed, self.free, *self.listed)}


@contextmanager
def frozen(server: Any) -> Iterator[None]:
    server.process.freeze()
    try:
        yield
    finally:
        server.process.thaw()


@contextmanager
def read_locked(server: MariaDB) -> Iterator[None]:
    """Hold the lock that a backup takes."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield


class Scene:
    """The service with one node on a database, whose pool has connections."""

    def __init__(self, directory: Path, url: str) -> None:
        Programs(directory, url).make_schema()
        self.service_path = f"/v1/services/{fill(url)}"
        self.service = Service(directory, url, down_after=3600)
        self.store: SqlStore = open_store(DatabaseSettings(url))

    @contextmanager
    def run(self, **options: Any) -> Iterator[Running]:
        with self.service.run(**options) as running:
            self.send_all(Writes().bodies, **LONG)
            yield running
        self.store.close()

    def send_all(self, bodies: list[Any], **headers: str) -> list[Any]:
        """Send claims at the same time; return what each was answered."""

        def send(body: Any) -> Any:
            return self.service.summarize("/v1/claims", "POST", body, **headers)

        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(send, bodies))

    def count_claims(self, uuids: set[str]) -> list[int]:
        """Return how many active claims each request has that has any."""
        active = [claim.uuid for claim in self.store.list_claims() if claim.is_active]
        return [active.count(found) for found in uuids if found in active]

    def check_repetitions(self, writes: Writes) -> None:
        """Assert that the same requests, once the database is back, are granted once each."""
        wait_until(lambda: self.service.summarize("/v1/nodes")[0] == 200)
        for _ in range(2):
            answers = self.send_all(writes.bodies, **LONG)
            assert {answer[0] for answer in answers} <= {200, 201}
        assert self.count_claims(writes.list_uuids()) == [1] * 5


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = SERVERS[request.param]()
    yield made
    made.remove()


@pytest.fixture
def scene(server: Any, tmp_path: Path) -> Scene:
    url = server.create_database(f"nt_{uuid.uuid4().hex}")
    return Scene(tmp_path, add_options(url, read_timeout=NEVER))


def test_a_frozen_server_keeps_no_request_for_longer_than_its_time(
    server: Any, scene: Scene
) -> None:
    """Whether the client or the configuration says how long; reads, claims and lists of them."""
    with scene.run(database_timeout=SECONDS) as running:
        writes = Writes()
        with frozen(server):
            for headers in ({}, {"Prefer": "wait=1"}):
                assert scene.send_all(writes.bodies, **headers) == [UNKNOWN] * 3
                assert scene.service.summarize("/v1/nodes", **headers) == AWAY
                change = scene.service.summarize(
                    scene.service_path, "PATCH", {"maintenance": False}, **headers
                )
                assert change == UNKNOWN
        scene.check_repetitions(writes)
        assert "Traceback" not in running.output()


def test_connecting_is_a_part_of_that_time(server: Any) -> None:
    """However long it may take otherwise, and for each of several hosts."""
    url = sa.make_url(server.create_database(f"nt_{uuid.uuid4().hex}"))
    if server.name == "postgresql":
        query = {"host": [f"{url.host}:{url.port}"] * 3, "connect_timeout": "100"}
        url = url.set(host=None, port=None).update_query_dict(query)
    else:
        url = url.update_query_dict({"connect_timeout": "100"})
    store = open_store(DatabaseSettings(url.render_as_string(hide_password=False)))
    with frozen(server), limit_database(1):
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.now()
        assert time.monotonic() - started < 90
    store.now()
    store.close()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_the_read_lock_of_a_backup_keeps_no_write_for_longer(server: Any, scene: Scene) -> None:
    with scene.run(database_timeout=SECONDS) as running:
        writes = Writes()
        with read_locked(server):
            assert scene.send_all(writes.bodies) == [UNKNOWN] * 3
            assert scene.service.summarize("/v1/nodes", **LONG) == (200, None, None)
        scene.check_repetitions(writes)
        assert "Traceback" not in running.output()


def test_a_locked_file_keeps_no_write_for_longer(tmp_path: Path) -> None:
    """SQLite says itself that it wrote nothing."""
    scene = Scene(tmp_path, f"sqlite:///{tmp_path / 'nt.sqlite'}")
    with scene.run(database_timeout=SECONDS) as running:
        writes = Writes()
        with closing(sqlite3.connect(tmp_path / "nt.sqlite")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert scene.send_all(writes.bodies) == [AWAY] * 3
            assert scene.service.summarize("/v1/nodes", **LONG) == (200, None, None)
            other.rollback()
        scene.check_repetitions(writes)
        assert "Traceback" not in running.output()
