"""Nodes whose reading, row and policy are as before are not accounted; clocks run on."""

import dataclasses

import pytest

from nodetracker.compute import row_writer
from nodetracker.compute.host_rows import FULL_LOAD_SECONDS
from nodetracker.model.claim import ClaimState
from nodetracker.model.fact import FactState, failed, fresh
from nodetracker.model.node import MEASURE_INTERVAL_SECONDS
from nodetracker.model.settings import AgentSettings, Policy
from tests.unit.compute.tracked_host import HOST, AgentWithClaimants, guest, node


@pytest.fixture
def host(clock, tmp_path):
    host = AgentWithClaimants(clock, tmp_path)
    host.claim(1)
    host.audit(node(1, guest(1), guest(2)), node(2))
    return host


@pytest.fixture
def accounted(monkeypatch):
    """Names of the nodes that are accounted."""
    names = []
    account = row_writer.account

    def counted(snapshot, *arguments):
        names.append(snapshot.nodename)
        return account(snapshot, *arguments)

    monkeypatch.setattr(row_writer, "account", counted)
    return names


def test_settled_nodes_are_not_accounted(host, accounted):
    host.audit()
    accounted.clear()
    before = host.records()
    report = host.audit()
    assert (accounted, report.changes, report.is_good) == ([], (), True)
    assert report.nodes == before


def test_a_changed_reading_is_accounted_of_its_node_alone(host, accounted):
    host.audit()
    accounted.clear()
    host.audit(node(1, guest(1), guest(2)), node(2, guest(3)))
    assert accounted == ["node-2"]


def test_a_row_that_others_changed_is_accounted(host, accounted):
    host.audit()
    host.claim(7)
    accounted.clear()
    host.audit()
    assert accounted == ["node-1"]


def test_rows_that_were_all_read_again_are_accounted(host, accounted, clock):
    host.audit()
    accounted.clear()
    clock.seconds += FULL_LOAD_SECONDS
    host.audit()
    assert sorted(accounted) == ["node-1", "node-2"]


def test_another_policy_accounts_every_node(host, accounted):
    host.audit()
    accounted.clear()
    policy = Policy(reserved_memory_mb=1024)
    host.tracker.reconfigure(AgentSettings(HOST, "", policy))
    host.audit()
    assert sorted(accounted) == ["node-1", "node-2"]


def test_warnings_and_errors_of_settled_nodes_remain(host):
    host.audit(node(1, guest(1), guest(2), memory_mb=1), node(2))
    before = host.audit()
    report = host.audit()
    assert before.warnings
    assert (report.warnings, report.errors) == (before.warnings, before.errors)


def test_a_held_fact_expires(host, clock):
    read = host.driver.get_available_resource
    host.driver.get_available_resource = lambda nodename: dataclasses.replace(
        read(nodename), cpu=failed("test", "boom")
    )
    for _ in range(3):
        host.audit()
    clock.seconds += 601
    host.tracker._rows._loaded_at = clock.seconds  # the rows are not due to be read again
    host.audit()
    entry = host.records()["node-2"].values.facts["cpu"]
    assert entry.state is FactState.UNKNOWN


def test_a_claim_without_a_guest_expires(host, clock):
    claim = host.claim(7)
    for _ in range(3):
        host.audit()
    clock.seconds += 601
    host.tracker._rows._loaded_at = clock.seconds
    host.audit()
    assert host.find(claim).state is ClaimState.RELEASED


def test_a_measurement_is_written_when_it_is_due(host, clock):
    """It changes once; then it stays as it is."""
    driver, read = host.driver, host.driver.get_available_resource
    available = [1000]

    def measure(nodename):
        snapshot = read(nodename)
        memory = dataclasses.replace(snapshot.memory.value, available_mb=available[0])
        return dataclasses.replace(snapshot, memory=fresh("test", memory))

    def stored():
        return host.records()["node-2"].values.metrics["memory_used_mb"]

    driver.get_available_resource = measure
    host.audit()
    assert stored() == 65536 - 1000
    available[0] = 9000
    for _ in range(3):
        host.audit()
    assert stored() == 65536 - 1000
    clock.seconds += MEASURE_INTERVAL_SECONDS + 1
    host.audit()
    assert stored() == 65536 - 9000
