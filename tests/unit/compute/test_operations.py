import pytest
import yaml

from nodetracker.compute.manager import ComputeManager, HostOperations
from nodetracker.model.errors import (
    DriverFeatureError,
    NotFoundError,
)
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.virt.fake.plugin import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import make_incarnation
from tests.stores import SqliteStore

HOST = "host-1"
NODE = {"vcpus": 4, "memory_mb": 8192, "disk_gb": 100}


class OperatedHost:
    def __init__(self, tmp_path, *nodenames):
        self.path = tmp_path / "inventory.yaml"
        self.write(*nodenames)
        self.store = SqliteStore()
        driver = FakeDriver(str(self.path), ProbeRunner(60))
        settings = AgentSettings(host=HOST, state_path="", policy=Policy())
        manager = ComputeManager(settings, make_incarnation(), "1", driver, self.store)
        manager.pre_start_hook()
        self.agent = HostOperations(HOST, manager, driver)
        self.manager, self.settings = manager, settings

    def write(self, *nodenames, **more):
        nodes = [NODE | more | {"nodename": name} for name in nodenames]
        self.path.write_text(yaml.safe_dump({"nodes": nodes}))


@pytest.fixture
def operated(tmp_path):
    return OperatedHost(tmp_path, "n1")


@pytest.fixture
def two(tmp_path):
    return OperatedHost(tmp_path, "n1", "n2")


def test_a_requested_audit_reports_the_outcome_of_each_node(two):
    two.write("n1", "n2", vcpus=8)
    assert two.agent.update_available_resource().nodes == {"n1": "update", "n2": "update"}
    assert two.agent.update_available_resource("n2").nodes == {"n2": "unchanged"}
    with pytest.raises(NotFoundError, match="no such node: n9 on host"):
        two.agent.update_available_resource("n9")


def test_only_a_requested_audit_forgets_what_readings_kept(operated, monkeypatch):
    refreshed = []
    monkeypatch.setattr(FakeDriver, "refresh", lambda driver: refreshed.append(driver))
    operated.manager.inventory_host()
    assert refreshed == []
    operated.agent.update_available_resource()
    assert len(refreshed) == 1


def test_a_requested_audit_reports_errors(operated):
    operated.path.write_text("nodes: [")
    outcome = operated.agent.update_available_resource()
    assert outcome.listing_error is not None
    assert "n1" in outcome.nodes


def test_actions_that_the_driver_does_not_support_are_errors(operated):
    with pytest.raises(DriverFeatureError):
        operated.agent.host_power_action("reboot")
