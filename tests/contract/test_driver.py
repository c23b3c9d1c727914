"""Contract suite of drivers: the rules that every driver follows."""

import dataclasses
import importlib
import queue
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.bootstrap.options.plugins import DRIVERS
from nodetracker.model.errors import DriverFeatureError, DriverUnavailableError
from nodetracker.model.node import HostSnapshot
from nodetracker.model.settings import Policy
from nodetracker.ports import DriverCapability
from tests.builders import NOW

_GUESTS = {DriverCapability.INSTANCES, DriverCapability.CONTAINERS}


@pytest.fixture(params=DRIVERS.list_names())
def case(request, tmp_path):
    case = importlib.import_module(f"tests.contract.drivers.{request.param}").make_case(tmp_path)
    case.driver.init_host()
    yield case
    case.driver.close()
    case.close()


def read_all(driver):
    return {
        name: driver.get_available_resource(name) for name in driver.get_available_nodes().nodenames
    }


def test_listed_nodes_are_distinct(case):
    listing = case.driver.get_available_nodes()
    assert listing.nodenames
    assert len(set(listing.nodenames)) == len(listing.nodenames)
    assert listing.unreachable == ()


def test_every_fact_of_every_node_is_fresh(case):
    for name, snapshot in read_all(case.driver).items():
        assert isinstance(snapshot, HostSnapshot)
        assert snapshot.nodename == name
        assert {fact: value.error for fact, value in snapshot.facts().items() if value.error} == {}
        assert all(fact.source for fact in snapshot.facts().values())


def test_every_node_has_a_complete_row(case):
    for snapshot in read_all(case.driver).values():
        view = account(snapshot, None, Policy(), NOW)
        assert view.missing == ()
        assert min(view.values.vcpus, view.values.memory_mb, view.values.local_gb) > 0


def test_two_readings_of_an_idle_node_give_one_row(case):
    first, second = read_all(case.driver), read_all(case.driver)
    for name in first:
        views = [account(snapshot, None, Policy(), NOW) for snapshot in (first[name], second[name])]
        steady = [
            dataclasses.replace(view.values, mem_available=0, disk_available_least=0, metrics={})
            for view in views
        ]
        assert steady[0] == steady[1]
        assert views[0].guests == views[1].guests
        assert views[0].devices == views[1].devices


def test_uuids_are_valid_and_distinct(case):
    for snapshot in read_all(case.driver).values():
        own = [snapshot.uuid] if snapshot.uuid else []
        guests = [guest.uuid for guest in snapshot.guests.value.guests]
        assert [str(uuid.UUID(text)) for text in own + guests] == own + guests
        assert len(set(guests)) == len(guests)


def test_nodes_may_be_read_concurrently(case):
    names = case.driver.get_available_nodes().nodenames * 8
    with ThreadPoolExecutor(8) as pool:
        snapshots = list(pool.map(case.driver.get_available_resource, names))
    assert [snapshot.nodename for snapshot in snapshots] == list(names)
    assert all(snapshot.cpu.is_fresh for snapshot in snapshots)


def test_a_fact_that_cannot_be_read_is_failed_and_never_zero(case):
    read_all(case.driver)
    case.break_fact()
    for snapshot in read_all(case.driver).values():
        fact = snapshot.facts()[case.broken_fact]
        assert fact.value is None
        assert fact.error
    case.mend()
    for snapshot in read_all(case.driver).values():
        assert snapshot.facts()[case.broken_fact].is_fresh


def test_the_error_of_a_failed_fact_stays_the_same(case):
    case.break_fact()
    first, second = read_all(case.driver), read_all(case.driver)
    assert {name: snapshot.facts()[case.broken_fact] for name, snapshot in first.items()} == {
        name: snapshot.facts()[case.broken_fact] for name, snapshot in second.items()
    }


def test_a_missing_source_is_unavailable_or_all_its_facts_fail(case):
    read_all(case.driver)
    case.cut()
    try:
        snapshots = read_all(case.driver)
        if _GUESTS & case.driver.capabilities and len(snapshots) == 1:
            assert not case.driver.get_available_nodes().is_ready
    except DriverUnavailableError as error:
        assert error.source
    else:
        for snapshot in snapshots.values():
            assert not snapshot.cpu.is_fresh
            assert not snapshot.memory.is_fresh
    case.mend()
    assert all(snapshot.memory.is_fresh for snapshot in read_all(case.driver).values())


def test_a_hung_reading_ends_in_time_and_affects_no_other_node(case):
    if case.hang is None:
        pytest.skip("files do not hang on demand; tests of probes do it")
    released = threading.Event()
    case.hang(released)
    started = time.monotonic()
    failing = [
        name for name, snapshot in read_all(case.driver).items() if not snapshot.cpu.is_fresh
    ]
    assert len(failing) == 1
    assert time.monotonic() - started < 10
    released.set()
    case.mend()


def test_a_change_sends_an_event_that_names_its_node(case):
    if case.change is None:
        pytest.skip("the driver does not support events")
    names = case.driver.get_available_nodes().nodenames
    events = queue.Queue()
    case.driver.events(events.put)
    case.change()
    assert events.get(timeout=30).nodename in names


def test_unsupported_operations_raise_driver_feature_error(case):
    if DriverCapability.EVENTS not in case.driver.capabilities:
        with pytest.raises(DriverFeatureError):
            case.driver.events(lambda event: None)
    if DriverCapability.POWER_ACTIONS not in case.driver.capabilities:
        with pytest.raises(DriverFeatureError):
            case.driver.host_power_action("reboot")
