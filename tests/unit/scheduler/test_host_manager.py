from typing import Any

import pytest

from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.scheduler import host_manager
from nodetracker.scheduler.host_manager import HostManager
from tests.contract.values import delete
from tests.unit.scheduler.fakes import ADMISSION_POLICY, ask


@pytest.fixture
def fake_fleet(empty_fleet):
    for name in ("n1", "n2", "n3"):
        empty_fleet.add(nodename=name)
    return empty_fleet


@pytest.fixture
def manager(fake_fleet):
    return HostManager(fake_fleet.store)


def record(fake_fleet, nodename):
    return next(r for r in fake_fleet.store.load_nodes("h1") if r.nodename == nodename)


def test_all_nodes_are_keyed_by_host_and_nodename(fake_fleet, manager):
    fake_fleet.add("h2", "n1")
    states = dict(manager.get_all_host_states())
    assert list(states) == [("h1", "n1"), ("h1", "n2"), ("h1", "n3"), ("h2", "n1")]
    assert all(state.key == key for key, state in states.items())


def test_pages_neither_skip_nor_repeat_a_node(fake_fleet, manager, monkeypatch):
    monkeypatch.setattr(host_manager, "PAGE_SIZE", 2)
    fake_fleet.add("h2", "m1")
    assert [key for key, _ in manager.get_all_host_states()] == [
        ("h1", "n1"),
        ("h1", "n2"),
        ("h1", "n3"),
        ("h2", "m1"),
    ]


def test_nodes_by_id_come_in_the_order_of_the_ids(fake_fleet, manager):
    first, second = record(fake_fleet, "n1").id, record(fake_fleet, "n3").id
    found = manager.get_host_states([second, 99999, first])
    assert [state.key for state in found] == [("h1", "n3"), ("h1", "n1")]


def test_without_ids_nothing_is_read():
    store: Any = None
    assert HostManager(store).get_host_states([]) == []


def test_each_request_reads_the_nodes_and_services_as_they_are_now(fake_fleet, manager):
    list(manager.get_all_host_states())
    fake_fleet.store.create_claim(ask(VCPU=2), "h1", "n2", ADMISSION_POLICY)
    fake_fleet.store.set_service("h1", COMPUTE_BINARY, ServiceChange(disabled=True))
    fake_fleet.store.apply_changes(fake_fleet.agents["h1"], [delete(record(fake_fleet, "n3"))], 60)
    fake_fleet.sleep(30)
    states = dict(manager.get_all_host_states())
    assert {key[1]: state.node.values.vcpus_used for key, state in states.items()} == {
        "n1": 0,
        "n2": 2,
    }
    for state in states.values():
        assert (state.node.service.disabled, state.node.now) == (True, fake_fleet.now)


def test_a_host_that_is_renamed_is_found_under_its_new_name(fake_fleet, manager):
    (seen,) = fake_fleet.store.list_services("h1")
    fake_fleet.store.rename_host("h1", "h9", COMPUTE_BINARY, seen)
    states = dict(manager.get_all_host_states())
    assert list(states) == [("h9", "n1"), ("h9", "n2"), ("h9", "n3")]
    assert all(state.node.service is not None for state in states.values())
