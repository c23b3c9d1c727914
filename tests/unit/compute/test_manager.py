import logging
from datetime import timedelta

import pytest
import yaml

from nodetracker.accounting.summary import audit_age_seconds
from nodetracker.compute.manager import ComputeManager
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import FencedError, StoreUnavailableError
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.settings import AgentSettings, Policy
from nodetracker.virt.fake.driver import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import NOW, make_incarnation

HOST = "host-1"
NODES = [{"nodename": name, "vcpus": 4, "memory_mb": 8192, "disk_gb": 100} for name in ("n1", "n2")]


class AwayStore(MemoryStore):
    is_away = False

    def _refuse(self):
        if self.is_away:
            raise StoreUnavailableError("connection refused")

    def register_agent(self, *arguments):
        self._refuse()
        return super().register_agent(*arguments)

    def load_stamps(self, *arguments):
        self._refuse()
        return super().load_stamps(*arguments)

    def beat(self, *arguments):
        self._refuse()
        return super().beat(*arguments)


class World:
    def __init__(self, tmp_path):
        self.seconds = 0.0
        self.path = tmp_path / "inventory.yaml"
        self.write()
        self.store = AwayStore(lambda: NOW + timedelta(seconds=self.seconds))
        self.reports = []
        self.manager = ComputeManager(
            AgentSettings(host=HOST, state_path="", policy=Policy()),
            make_incarnation(),
            "1.2.3",
            FakeDriver(str(self.path), ProbeRunner(0.2)),
            self.store,
            [self],
            lambda: self.seconds,
        )

    def audited(self, report):
        self.reports.append(report)

    def write(self, **more):
        self.path.write_text(yaml.safe_dump({"nodes": NODES} | more))

    def service(self):
        return self.store.list_services(HOST, COMPUTE_BINARY)[0]

    def age(self, nodename):
        return audit_age_seconds(self.service(), nodename, self.store.now())


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.manager.init_host()
    return world


def test_the_start_audits_before_anything_is_served(world):
    world.manager.pre_start_hook()
    assert {record.nodename for record in world.store.list_nodes()} == {"n1", "n2"}
    service = world.service()
    assert (service.epoch, service.version, service.last_seen_up) == (1, "1.2.3", None)


def test_observers_are_told_of_every_audit(world):
    world.manager.pre_start_hook()
    world.manager.inventory_host()
    assert [len(report.changes) for report in world.reports] == [2, 0]


def test_an_observer_that_fails_stops_nothing(world, caplog):
    world.reports = None
    world.manager.pre_start_hook()
    assert len(world.store.list_nodes()) == 2
    assert "was told of an audit and failed" in caplog.text


def test_the_heartbeat_carries_the_age_of_the_audit_and_of_what_is_not_fine(world):
    world.manager.pre_start_hook()
    world.seconds = 60
    world.write(fail={"n2": "boom"})
    world.manager.inventory_host()
    world.seconds = 65
    world.manager.beat()
    world.seconds = 68
    assert world.age("n1") == 8
    assert world.age("n2") == 68
    assert "boom" in world.service().last_audit["nodes"]["n2"]["error"]


def test_the_heartbeat_goes_on_rising(world):
    world.manager.pre_start_hook()
    for count in (1, 2, 3):
        world.manager.beat()
        assert world.service().report_count == count


def test_a_database_away_at_the_start_is_one_line_and_no_end(world, caplog):
    caplog.set_level(logging.INFO)
    world.store.is_away = True
    world.manager.pre_start_hook()
    world.manager.beat()
    world.manager.inventory_host()
    world.store.is_away = False
    world.seconds = 30
    world.manager.inventory_host()
    world.manager.beat()
    assert len(world.store.list_nodes()) == 2
    assert world.service().report_count == 1
    told = [message for message in caplog.messages if "database" in message]
    assert told == ["The database: connection refused", "The database is back after 30 s"]


def test_an_agent_that_was_taken_over_is_told_so(world):
    world.manager.pre_start_hook()
    world.store.register_agent(HOST, COMPUTE_BINARY, "compute", "1", make_incarnation(pid=7))
    with pytest.raises(FencedError):
        world.manager.beat()
    with pytest.raises(FencedError):
        world.manager.inventory_host()
