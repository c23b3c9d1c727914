"""nodetracker-api while its database or its broker is away: the right answer, and then it works again."""

from collections.abc import Iterator

import pytest

from tests.functional.api_service import AWAY, Service, fill
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, Running, wait_until


@pytest.fixture
def server() -> Iterator[MariaDB]:
    made = MariaDB()
    yield made
    made.remove()


def list_problems(running: Running) -> list[str]:
    """Return the lines of the log that want an operator's attention."""
    lines = running.output().splitlines()
    return [line for line in lines if " WARNING " in line or " ERROR " in line]


def test_a_database_that_is_stopped_read_only_or_cut_under_load(server: MariaDB, tmp_path):
    url = server.create_database("nt_api")
    Programs(tmp_path, url).make_schema()
    path = f"/v1/services/{fill(url)}"
    service = Service(tmp_path, url)
    change = {"maintenance": True}
    fine = (200, None, None)
    with service.run() as running, service.load():
        service.wait_for_more(fine)
        wait_until(lambda: service.read_health() == (200, {"broker": "pass", "database": "pass"}))
        server.stop()
        service.wait_for_more(AWAY)
        wait_until(lambda: service.read_health() == (503, {"broker": "pass", "database": "fail"}))
        assert "nodetracker_api_database_up 0.0\n" in service.read_metrics()
        assert service.summarize(path, "PATCH", change) == AWAY
        server.start()
        service.wait_for_more(fine)
        wait_until(lambda: service.read_health()[0] == 200)
        assert "nodetracker_fleet_nodes" in service.read_metrics()
        running.wait_for("The database is back after ")
        [problem] = list_problems(running)
        assert "The database: " in problem
        server.set_read_only(True)
        assert service.summarize(path, "PATCH", change) == AWAY
        service.wait_for_more(fine)
        server.set_read_only(False)
        assert service.summarize(path, "PATCH", change) == fine
        assert server.kill_connections() > 0
        service.wait_for_more(fine)
    assert set(service.seen) == {fine, AWAY}


def test_without_its_broker_all_goes_on(tmp_path):
    programs = Programs(tmp_path)
    programs.make_schema()
    path = f"/v1/services/{fill(programs.connection)}"
    service = Service(tmp_path, programs.connection)
    broker = f"transport_url = rabbit://nobody:secret@127.0.0.1:{find_free_port()}/"
    with service.run(broker) as running:
        assert service.summarize("/v1/nodes") == (200, None, None)
        for is_disabled in (True, False) * 3:
            change = service.summarize(path, "PATCH", {"disabled": is_disabled})
            assert change == (200, None, None)
        warned = 200, {"broker": "warn", "database": "pass"}
        wait_until(lambda: service.read_health() == warned)
        for problem in ("The message broker at ", "Notifications wait: "):
            assert sum(problem in line for line in list_problems(running)) <= 1
        assert len(list_problems(running)) <= 2
