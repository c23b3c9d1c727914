from dataclasses import replace

import pytest
import yaml

from nodetracker.bootstrap.options.pci_entries import parse_aliases
from nodetracker.compute.manager import ComputeManager
from nodetracker.compute.operations import HostOperations
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.errors import (
    ClaimRefusedError,
    DriverFeatureError,
    NotFoundError,
    RefusedError,
    RequestError,
)
from nodetracker.model.settings import AgentSettings, PciPolicy, Policy
from nodetracker.virt.fake.plugin import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import make_incarnation
from tests.stores import SqliteStore

HOST = "host-1"
NODE = {"vcpus": 4, "memory_mb": 8192, "disk_gb": 100}
REQUEST = {
    "workload": {"uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"},
    "resources": {"VCPU": 2, "MEMORY_MB": 1024},
}


class OperatedHost:
    def __init__(self, tmp_path, *nodenames):
        self.path = tmp_path / "inventory.yaml"
        self.write(*nodenames)
        self.store = SqliteStore()
        driver = FakeDriver(str(self.path), ProbeRunner(60))
        settings = AgentSettings(host=HOST, state_path="", policy=Policy())
        manager = ComputeManager(settings, make_incarnation(), "1", driver, self.store)
        manager.pre_start_hook()
        self.agent = HostOperations(HOST, manager, driver, self.store, ClaimCounter())
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


def test_a_claim_without_a_nodename_is_for_the_only_node(operated):
    claim = operated.agent.instance_claim(REQUEST)
    assert (claim.host, claim.nodename, claim.state) == (HOST, "n1", ClaimState.HELD)
    assert operated.agent.renew_claim(claim.uuid).state is ClaimState.HELD
    assert operated.agent.confirm_claim(claim.uuid).state is ClaimState.CONFIRMED
    assert operated.agent.get_node_view("n1").values.vcpus_used == 2
    assert operated.agent.abort_claim(claim.uuid).reason == "aborted"


def test_a_claim_on_a_host_with_several_nodes_requires_a_nodename(two):
    with pytest.raises(RefusedError, match="has 2 nodes: name one of them"):
        two.agent.instance_claim(REQUEST)
    assert two.agent.instance_claim(REQUEST | {"nodename": "n2"}).nodename == "n2"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"host": "host-2"}, RefusedError, "is for host host-2, this is host-1"),
        ({"colour": "red"}, RequestError, "unknown key 'colour'"),
        ({"resources": {"VCPU": 99}}, ClaimRefusedError, "Free vcpu"),
    ],
    ids=str,
)
def test_an_invalid_claim_is_refused(operated, changes, error, message):
    with pytest.raises(error, match=message):
        operated.agent.instance_claim(REQUEST | changes)


def test_a_move_is_created_confirmed_and_reverted(two):
    source = two.agent.instance_claim(REQUEST | {"nodename": "n1"})
    move = {"migration": {"type": "migration", "source_claim": source.uuid}, "nodename": "n2"}
    first = two.agent.move_claim(REQUEST | move)
    assert two.agent.revert_migration(first.uuid).status is MigrationStatus.REVERTED
    second = two.agent.move_claim(REQUEST | move)
    assert two.agent.confirm_migration(second.uuid).status is MigrationStatus.CONFIRMED


def test_a_claim_that_is_released_is_not_granted_again(operated):
    request = REQUEST | {"uuid": "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"}
    claim = operated.agent.instance_claim(request)
    assert operated.agent.instance_claim(request) == claim
    operated.agent.abort_claim(claim.uuid)
    with pytest.raises(RefusedError, match=r"is released \(aborted\); use another uuid"):
        operated.agent.instance_claim(request)


def test_a_move_that_ended_at_its_source_is_not_granted_again(two):
    source = two.agent.instance_claim(REQUEST | {"nodename": "n1"})
    move = REQUEST | {
        "uuid": "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b",
        "migration": {"type": "migration", "source_claim": source.uuid},
        "nodename": "n2",
    }
    migration = two.agent.move_claim(move)
    two.agent.revert_migration(migration.uuid)
    with pytest.raises(RefusedError, match="granted before and is reverted; use a uuid other than"):
        two.agent.move_claim(move)


def test_disabling_a_host_and_maintenance_are_independent(operated):
    assert operated.agent.set_host_enabled(False, "disk").disabled_reason == "disk"
    service = operated.agent.host_maintenance_mode(True)
    assert (service.maintenance, service.disabled_reason) == (True, "disk")
    with pytest.raises(ClaimRefusedError) as refused:
        operated.agent.instance_claim(REQUEST)
    assert refused.value.reasons == (
        "host host-1 is disabled: disk",
        "host host-1 is in maintenance",
    )
    operated.agent.host_maintenance_mode(False)
    operated.agent.set_host_enabled(True)
    assert operated.agent.instance_claim(REQUEST)


def test_actions_that_the_driver_does_not_support_are_errors(operated):
    with pytest.raises(DriverFeatureError):
        operated.agent.host_power_action("reboot")
    with pytest.raises(DriverFeatureError):
        operated.agent.get_host_uptime("n1")


def test_a_missing_node_has_no_view(operated):
    with pytest.raises(NotFoundError, match="no such node: n9 on host host-1"):
        operated.agent.get_node_view("n9")


def test_claims_use_the_aliases_that_are_configured_now(operated):
    request = REQUEST | {"pci_requests": [{"alias": "nic"}]}
    with pytest.raises(ClaimRefusedError, match="unknown PCI alias: nic"):
        operated.agent.instance_claim(request)
    aliases = parse_aliases(['{"name": "nic", "vendor_id": "8086", "product_id": "10ed"}'])
    policy = replace(operated.settings.policy, pci=PciPolicy(aliases=aliases))
    operated.manager.reconfigure(replace(operated.settings, policy=policy))
    with pytest.raises(ClaimRefusedError) as refused:
        operated.agent.instance_claim(request)
    assert "unknown PCI alias" not in str(refused.value)


def test_each_change_that_an_agent_is_called_for_is_audited_soon(two, monkeypatch):
    moved = []
    monkeypatch.setattr(two.manager, "ledger_moved", lambda nodename=None: moved.append(nodename))
    source = two.agent.instance_claim(REQUEST | {"nodename": "n1"})
    two.agent.renew_claim(source.uuid)
    two.agent.confirm_claim(source.uuid)
    assert moved == ["n1"] * 3
    move = {"migration": {"type": "migration", "source_claim": source.uuid}, "nodename": "n2"}
    two.agent.revert_migration(two.agent.move_claim(REQUEST | move).uuid)
    two.agent.abort_claim(source.uuid)
    assert moved[3:] == ["n1", "n2", "n1", "n2", "n1"]
    two.agent.set_host_enabled(False)
    two.agent.host_maintenance_mode(True)
    two.agent.ledger_moved("n2")
    assert moved[8:] == [None, None, "n2"]
