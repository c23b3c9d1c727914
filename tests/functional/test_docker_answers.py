"""The docker driver on a stub engine: invalid answers, number of requests, lost connections."""

import os
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import docker
import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.model.audit import EventKind
from nodetracker.model.errors import ConfigError, DriverUnavailableError, HostDataError
from nodetracker.model.guest import CpuAffinity
from nodetracker.model.numa import NumaTopology
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.driver import DockerDriver
from nodetracker.virt.docker.events import EventListener
from nodetracker.virt.docker.guests import WORKLOAD_LABEL
from nodetracker.virt.docker.plugin import PLUGIN
from nodetracker.virt.docker.starts import StartRules
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.builders import NOW
from tests.engine_stub import EngineStub, describe_container
from tests.functional.servers.process import require_root
from tests.hosts.captures import HERE, unpack
from tests.programs import wait_until

HOST = "host-1"
UUID = "6a0e1f0e-5a43-4a6e-9d1c-0f6f5f6e2c11"
PATIENCE = 60  # seconds that a busy machine may take


class DriverOnStub:
    """A stub and a driver on it; `now` is the driver's clock."""

    def __init__(self, directory):
        self.directory = directory
        self.stub = EngineStub(directory)
        self.root = directory / "root"
        (self.root / "var/lib/docker").mkdir(parents=True)
        self.now = 1000.0
        self.drivers = []

    def driver(self, host=HOST, timeout=PATIENCE, roots=None, **options):
        roots = roots or Roots(rootfs=self.root)
        environment = DriverEnvironment(host, str(self.directory), roots, ProbeRunner(timeout))
        made = DockerDriver(
            environment,
            EngineClient(self.stub.url, timeout),
            monotonic=lambda: self.now,
            **options,
        )
        self.drivers.append(made)
        return made

    def close(self):
        self.stub.is_open.set()
        for driver in self.drivers:
            driver.close()
        self.stub.stop()


@pytest.fixture
def driver_on_stub(tmp_path):
    made = DriverOnStub(tmp_path)
    yield made
    made.close()


@pytest.fixture
def stub(driver_on_stub):
    return driver_on_stub.stub


def guests_of(snapshot):
    return {guest.name: guest for guest in snapshot.guests.value.guests}


def errors_of(snapshot):
    return {name: fact.error for name, fact in snapshot.facts().items() if fact.error}


def listen(driver):
    events = queue.Queue()
    driver.events(events.put)
    assert events.get(timeout=PATIENCE).kind is EventKind.SOURCE
    return events


def event_of(number, action="update", at=1):
    return {
        "Type": "container",
        "Action": action,
        "Actor": {"ID": f"{number:064x}", "Attributes": {"name": f"web-{number}"}},
        "timeNano": 1_795_000_000_000_000_000 + at,
    }


class TestInvalidAnswers:
    """An invalid item raises one warning and does not affect other facts."""

    @pytest.mark.parametrize(
        ("changes", "warned"),
        [
            pytest.param({"Labels": ["gpu", "rack=7"]}, ["label 'gpu' has no value"], id="label"),
            pytest.param({"Labels": ["url=a=b", "rack=7"]}, [], id="several equals"),
            pytest.param({"DriverStatus": None}, [], id="null DriverStatus"),
            pytest.param({"Runtimes": None}, [], id="missing Runtimes"),
            pytest.param({"Name": "other"}, ["reports its host as other"], id="another host name"),
            pytest.param({"Name": "host-1.example.com"}, [], id="a domain more"),
        ],
    )
    def test_invalid_items_fail_no_fact(self, driver_on_stub, stub, changes, warned):
        stub.info |= changes
        stub.add(describe_container())
        snapshot = driver_on_stub.driver().get_available_resource(HOST)
        assert errors_of(snapshot) == {}
        view = account(snapshot, None, Policy(), NOW)
        assert view.missing == ()
        assert view.values.labels["rack"] == "7"
        own = {WarningKind.ENGINE_DATA, WarningKind.ENGINE_NAME}
        found = [warning.message for warning in view.warnings if warning.kind in own]
        assert len(found) == len(warned)
        assert all(text in message for text, message in zip(warned, found, strict=True))

    @pytest.mark.parametrize(
        ("runtime", "default", "is_warned"),
        [
            ("kata-runtime", "runc", True),
            ("io.containerd.kata.v2", "runc", True),
            (None, "kata", True),
            ("runc", "kata", False),
        ],
    )
    def test_memory_of_virtual_machines_of_containers_is_warned_of(
        self, driver_on_stub, stub, runtime, default, is_warned
    ):
        stub.info["DefaultRuntime"] = default
        stub.add(describe_container(1, Runtime=runtime))
        warnings = driver_on_stub.driver().get_available_resource(HOST).warnings
        found = [w.message for w in warnings if "Kata" in w.message]
        assert ["web-1" in message for message in found] == [True] * is_warned

    @pytest.mark.parametrize("memory", ["512m", "1.5g", "x", 1.5])
    def test_an_unreadable_container_does_not_affect_others(self, driver_on_stub, stub, memory):
        stub.add(describe_container(1), describe_container(2, Memory=memory))
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert [guest.name for guest in listing.guests] == ["web-1"]
        assert [guest.name for guest in listing.partial] == ["web-2"]
        assert "container web-2: Memory" in listing.partial[0].problem

    @pytest.mark.parametrize("memory", ["", None, 0])
    def test_all_notations_of_no_memory_limit_are_accepted(self, driver_on_stub, stub, memory):
        stub.add(describe_container(1, Memory=memory))
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert [(g.memory_mb, g.assumed_memory_mb) for g in listing.partial] == [(None, 64)]

    def test_a_container_that_disappears_while_it_is_read_is_left_out(self, driver_on_stub, stub):
        stub.add(describe_container(1), describe_container(2))
        stub.statuses[f"/containers/{2:064x}/json"] = (404, "No such container")
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert [guest.name for guest in listing.guests] == ["web-1"]
        assert listing.is_complete

    def test_an_engine_error_for_one_container_does_not_affect_others(self, driver_on_stub, stub):
        stub.add(describe_container(1), describe_container(2))
        stub.statuses[f"/containers/{2:064x}/json"] = (500, "broken")
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert [guest.name for guest in listing.guests] == ["web-1"]
        (unread,) = listing.partial
        assert unread.problem == "container web-2: answered 500: broken"
        assert (unread.memory_mb, unread.holds_nothing) == (None, False)

    def test_a_container_that_was_never_read_and_is_dead_holds_nothing(self, driver_on_stub, stub):
        for number, state in enumerate(("dead", "removing"), 1):
            stub.add(describe_container(number) | {"State": {"Status": state}})
            stub.statuses[f"/containers/{number:064x}/json"] = (500, "broken")
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert [guest.holds_nothing for guest in listing.partial] == [True, True]

    def test_a_container_that_cannot_be_read_again_keeps_its_last_amounts(
        self, driver_on_stub, stub
    ):
        stub.add(describe_container(1), describe_container(2))
        driver = driver_on_stub.driver()
        driver.get_available_resource(HOST)
        stub.statuses[f"/containers/{2:064x}/json"] = (500, "broken")
        snapshot = driver.get_available_resource(HOST)
        view = account(snapshot, None, Policy(), NOW)
        assert {g.name: g.memory_mb for g in view.guests.values()} == {"web-1": 64, "web-2": 64}
        assert snapshot.guests.value.is_complete
        messages = [w.message for w in view.warnings if w.kind is WarningKind.GUEST_UNREADABLE]
        assert messages == ["container web-2: answered 500: broken"]

    def test_a_linked_container_is_reported_by_its_own_name(self, driver_on_stub, stub):
        stub.add(describe_container(2, Memory="odd"))
        stub.names[f"{2:064x}"] = ["/shop/db", "/web-2", "/blog/db"]
        listing = driver_on_stub.driver().get_available_resource(HOST).guests.value
        assert listing.partial[0].problem.startswith("container web-2: Memory")

    def test_sets_of_containers_are_cpus_of_the_machine(self, driver_on_stub, stub):
        stub.add(describe_container(1, CpusetCpus="1", NanoCpus=0))
        guest = guests_of(driver_on_stub.driver().get_available_resource(HOST))["web-1"]
        assert guest.pins.affinities == (CpuAffinity(frozenset({1}), 1000),)

    def test_of_two_containers_with_one_workload_the_older_keeps_the_uuid(
        self, driver_on_stub, stub
    ):
        for number in (1, 2):
            raw = describe_container(number)
            raw["Config"]["Labels"] = {WORKLOAD_LABEL: UUID}
            stub.add(raw)
        snapshot = driver_on_stub.driver().get_available_resource(HOST)
        guests = guests_of(snapshot)
        assert guests["web-1"].uuid == UUID != guests["web-2"].uuid
        assert [w.item for w in snapshot.warnings] == ["web-2"]

    @pytest.mark.parametrize(
        ("name", "answer", "facts"),
        [
            ("info", [], {"engine", "hypervisor", "storage"}),
            ("version", {"ApiVersion": "1.43", "Components": "odd"}, set()),
            ("containers", None, {"guests"}),
            ("disk_use", [], set()),
        ],
    )
    def test_an_answer_of_the_wrong_type_fails_only_its_facts(
        self, driver_on_stub, stub, name, answer, facts
    ):
        if name == "containers":
            stub.statuses["/containers/json"] = (200, "no list")
        else:
            setattr(stub, name, answer)
        assert set(errors_of(driver_on_stub.driver().get_available_resource(HOST))) == facts

    def test_an_engine_that_is_too_old_is_an_error(self, driver_on_stub, stub):
        stub.version["ApiVersion"] = "1.39"
        errors = errors_of(driver_on_stub.driver().get_available_resource(HOST))
        assert errors["engine"] == "API version 1.39 is too old: expected 1.40 or later"
        assert {"engine", "guests", "hypervisor", "storage"} == set(errors)

    def test_an_engine_without_a_version_is_an_error(self, driver_on_stub, stub):
        stub.version = {"ApiVersion": None}
        errors = errors_of(driver_on_stub.driver().get_available_resource(HOST))
        assert errors["guests"] == "does not report its API version"

    def test_an_upgraded_engine_is_reconnected(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()
        driver.get_available_resource(HOST)
        stub.version["ApiVersion"] = "1.44"
        stub.statuses["/info"] = (400, "client version 1.43 is too old")
        assert "too old" in errors_of(driver.get_available_resource(HOST))["engine"]
        stub.statuses.clear()
        snapshot = driver.get_available_resource(HOST)
        assert snapshot.engine.value.api_version == "1.44"

    def test_an_engine_that_is_down_is_an_unreachable_source(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()
        assert driver.get_available_nodes().unreachable == ()
        stub.stop()
        listing = driver.get_available_nodes()
        assert listing.nodenames == (HOST,)
        assert listing.unreachable == (f"{stub.url}: No such file or directory",)

    def test_a_hung_engine_fails_its_facts_within_the_timeout(self, driver_on_stub, stub):
        driver = driver_on_stub.driver(timeout=1)
        driver.get_available_resource(HOST)
        stub.is_open.clear()
        began = time.monotonic()
        errors = errors_of(driver.get_available_resource(HOST))
        assert set(errors) == {"engine", "guests", "hypervisor"}
        assert time.monotonic() - began < PATIENCE / 2
        stub.is_open.set()
        wait_until(lambda: errors_of(driver.get_available_resource(HOST)) == {})


class TestLargeAnswers:
    """An answer is not read beyond a limit, and only what it has is not known."""

    @pytest.fixture(autouse=True)
    def limit(self, monkeypatch):
        monkeypatch.setattr("nodetracker.virt.docker.client.MAX_ANSWER_BYTES", 100_000)

    def test_a_container_whose_description_is_too_long_is_unreadable_alone(
        self, driver_on_stub, stub
    ):
        long = describe_container(2)
        long["Config"]["Labels"] = {"a": "x" * 200_000}
        stub.add(describe_container(1), long, describe_container(3))
        snapshot = driver_on_stub.driver().get_available_resource(HOST)
        assert {"web-1", "web-3"} <= set(guests_of(snapshot))
        assert "answered with more than 100000 bytes" in repr(snapshot.guests)

    @pytest.mark.parametrize("call", ["info", "version", "get_disk_usage", "list_containers"])
    @pytest.mark.parametrize("status", [200, 500])
    def test_an_answer_that_is_too_long_is_an_error(self, stub, call, status):
        client, long = EngineClient(stub.url, PATIENCE), "x" * 200_000
        client.ping()
        stub.info = stub.version = stub.disk_use = {"ApiVersion": "1.43", "a": long}
        stub.names["1"] = [long]
        stub.containers["1"] = describe_container(1)
        if status != 200:
            paths = ("/info", "/version", "/system/df", "/containers/json")
            stub.statuses |= dict.fromkeys(paths, (status, long))
        with pytest.raises(HostDataError, match="answered with more than 100000 bytes"):
            getattr(client, call)()
        client.ping()  # by a new connection

    def test_the_refusal_of_a_stream_of_events_is_limited(self, stub):
        stub.statuses["/events"] = 500, "x" * 200_000
        with pytest.raises(HostDataError, match="answered with more than 100000 bytes"):
            EngineClient(stub.url, PATIENCE).open_events(None, {}, 1)

    def test_an_answer_that_is_too_deep_is_an_error(self, stub):
        client = EngineClient(stub.url, PATIENCE)
        stub.texts["/info"] = "[" * 50_000 + "]" * 50_000
        with pytest.raises(HostDataError, match="answered with invalid JSON"):
            client.info()


class TestRequests:
    """Data that has not changed is not requested again."""

    def count(self, stub, driver):
        """Return the paths that a reading requests, without its measurements."""
        stub.requests.clear()
        driver.get_available_resource(HOST)
        return sorted(path for path in stub.requests if not path.endswith(("/stats", "/system/df")))

    def test_an_idle_audit_is_one_request_while_events_arrive(self, driver_on_stub, stub):
        stub.add(*(describe_container(number) for number in range(1, 21)))
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        assert self.count(stub, driver) == ["/containers/json"]

    def test_calls_that_connect_at_once_do_not_close_each_other_s_connection(
        self, stub, monkeypatch
    ):
        used, closed = [], []
        close = docker.APIClient.close
        monkeypatch.setattr(
            docker.APIClient, "close", lambda self: (closed.append(self), close(self))
        )
        client = EngineClient(stub.url, PATIENCE)
        stub.is_open.clear()
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(client._call, used.append) for _ in range(2)]
            wait_until(lambda: stub.requests.count("/_ping") == 2)
            stub.is_open.set()
        assert [call.result() for call in calls] == [None, None]
        assert len(used) == 2
        assert not set(used) & set(closed)
        client.close()

    def test_connecting_is_the_cheapest_request(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()
        driver.get_available_nodes()
        assert set(stub.requests) == {"/_ping"}
        driver.get_available_resource(HOST)
        assert stub.requests.count("/version") == 1

    def test_the_report_is_requested_every_minute(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        driver_on_stub.now += 60
        assert self.count(stub, driver) == ["/containers/json", "/info", "/version"]

    def test_an_event_causes_one_more_request(self, driver_on_stub, stub):
        stub.add(*(describe_container(number) for number in range(1, 21)))
        driver = driver_on_stub.driver()
        events = listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        stub.containers[f"{3:064x}"]["HostConfig"]["Memory"] = 128 << 20
        stub.send_event(event_of(3))
        events.get(timeout=PATIENCE)
        assert self.count(stub, driver) == [f"/containers/{3:064x}/json", "/containers/json"]
        assert guests_of(driver.get_available_resource(HOST))["web-3"].memory_mb == 128

    def test_a_changed_state_in_the_list_causes_an_inspection_without_an_event(
        self, driver_on_stub, stub
    ):
        stub.add(describe_container(1))
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        stub.containers[f"{1:064x}"]["State"]["Status"] = "paused"
        assert self.count(stub, driver) == [f"/containers/{1:064x}/json", "/containers/json"]

    def test_a_health_that_the_list_names_is_inspected_without_an_event(
        self, driver_on_stub, stub, monkeypatch
    ):
        stub.add(describe_container(1))
        state = stub.containers[f"{1:064x}"]["State"]
        state["Health"] = {"Status": "healthy"}
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        assert (
            guests_of(driver.get_available_resource(HOST))["web-1"].details["health"] == "healthy"
        )
        assert self.count(stub, driver) == ["/containers/json"]
        state["Health"] = {"Status": "unhealthy"}
        assert self.count(stub, driver) == [f"/containers/{1:064x}/json", "/containers/json"]
        found = guests_of(driver.get_available_resource(HOST))["web-1"]
        assert found.details["health"] == "unhealthy"

    def test_a_refresh_causes_everything_to_be_requested_again(self, driver_on_stub, stub):
        stub.add(describe_container(1))
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        driver.refresh()
        driver_on_stub.now += 1
        everything = [f"/containers/{1:064x}/json", "/containers/json", "/info", "/version"]
        assert self.count(stub, driver) == everything
        driver_on_stub.now += 1
        assert self.count(stub, driver) == ["/containers/json"]

    def test_every_container_is_inspected_every_ten_minutes(self, driver_on_stub, stub):
        stub.add(describe_container(1))
        driver = driver_on_stub.driver()
        listen(driver)
        driver_on_stub.now += 1
        driver.get_available_resource(HOST)
        driver_on_stub.now += 601
        assert f"/containers/{1:064x}/json" in self.count(stub, driver)

    def test_without_events_every_container_is_inspected(self, driver_on_stub, stub):
        stub.add(describe_container(1))
        driver = driver_on_stub.driver()
        driver.get_available_resource(HOST)
        assert f"/containers/{1:064x}/json" in self.count(stub, driver)

    def test_images_are_measured_every_ten_minutes(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()

        def is_measured():
            return driver.get_available_resource(HOST).measured.get("images_disk_used_mb") == 5

        wait_until(is_measured)
        assert stub.queries["/system/df"] == "type=image"  # volumes are measured file by file
        stub.requests.clear()
        assert is_measured()
        assert "/system/df" not in stub.requests
        driver_on_stub.now += 601
        stub.disk_use = {"LayersSize": 6 << 20}
        wait_until(lambda: not is_measured())
        stub.statuses["/system/df"] = (500, "busy")
        driver_on_stub.now += 601
        assert driver.get_available_resource(HOST).measured["images_disk_used_mb"] is not None

    def test_no_reading_waits_for_a_slow_measurement_of_images(self, driver_on_stub, stub):
        stub.is_slow_with.add("/system/df")
        driver = driver_on_stub.driver()
        began = time.monotonic()
        for _ in range(3):
            assert driver.get_available_resource(HOST).guests.is_fresh
        assert time.monotonic() - began < PATIENCE
        assert stub.requests.count("/system/df") <= 1

    def test_a_measurement_that_is_not_available_is_none(self, driver_on_stub, stub):
        stub.add(describe_container(1))
        stub.counters[f"{1:064x}"] = {
            "cpu_stats": {"cpu_usage": {"total_usage": 1}},
            "memory_stats": {"usage": 100 << 20},
        }
        stub.is_slow_with.add("/system/df")
        assert driver_on_stub.driver().get_available_resource(HOST).measured == {
            "containers_memory_used_mb": 100,
            "containers_cpu_used_milli": None,
            "images_disk_used_mb": None,
        }

    def test_without_measurements_unlimited_containers_are_still_measured(
        self, driver_on_stub, stub
    ):
        stub.add(describe_container(1), describe_container(2, Memory=0))
        stub.counters[f"{2:064x}"] = {
            "cpu_stats": {"cpu_usage": {"total_usage": 1}},
            "memory_stats": {"usage": 100 << 20},
        }
        driver = driver_on_stub.driver(measures_containers=False)
        snapshot = driver.get_available_resource(HOST)
        assert snapshot.measured == {}
        assert guests_of(snapshot)["web-2"].memory_mb == 128
        assert "/system/df" not in stub.requests
        assert f"/containers/{1:064x}/stats" not in stub.requests


def test_the_first_container_with_devices_is_asked_about_as_it_is_listed_later(
    driver_on_stub, stub
):
    """Audits read device nodes only while a container has some."""
    node = driver_on_stub.root / "sys/class/drm/renderD128"
    node.mkdir(parents=True)
    (node / "device").symlink_to("../../../devices/0000:c1:00.0")
    roots = Roots(sysfs=driver_on_stub.root / "sys", rootfs=driver_on_stub.root)
    driver = driver_on_stub.driver(roots=roots)
    driver.get_available_resource(HOST)
    made = describe_container(1, Devices=[{"PathOnHost": "/dev/dri/renderD128"}])
    question = {"ask": "create", "document": {"HostConfig": made["HostConfig"]}}
    asked = driver.make_start_reader(StartRules(64)).read(question, NumaTopology())
    assert asked.pins.devices == ("0000:c1:00.0",)
    stub.containers[made["Id"]] = made
    assert guests_of(driver.get_available_resource(HOST))["web-1"].pins == asked.pins


def test_cpus_and_devices_of_containers_are_in_use(driver_on_stub, stub):
    unpack(HERE / "8amd64-1pa2n2c2t-sriov.tar.xz", driver_on_stub.directory)
    machine = driver_on_stub.directory / "8amd64-1pa2n2c2t-sriov"
    roots = Roots(machine / "proc", machine / "sys", driver_on_stub.root)
    stub.add(
        describe_container(
            1,
            NanoCpus=0,
            CpusetCpus="2,6",
            DeviceRequests=[{"Driver": "nvidia", "Count": -1}],
            Devices=[{"PathOnHost": "/dev/vfio/51"}],
        ),
        describe_container(2, NanoCpus=0, CpusetCpus="3"),
    )
    driver = driver_on_stub.driver(roots=roots)
    policy = Policy(cpu_shared_set=frozenset(range(8)) - {2}, cpu_dedicated_set=frozenset({2}))
    snapshot = driver.get_available_resource(HOST)
    view = account(snapshot, None, policy, NOW)
    assert view.values.gpus[0]["guests"] == [guests_of(snapshot)["web-1"].uuid]
    assert view.values.inventory["PGPU"]["reserved"] == 1
    assert guests_of(snapshot)["web-1"].pins.devices == ("0000:81:10.2", "0000:c1:00.0")
    cells = view.values.numa_topology["cells"]
    assert {cpu for cell in cells for cpu in cell["pinned_cpus"]} == {2}
    assert (view.values.pcpus_used, view.values.vcpus_used) == (1, 2)
    devices = machine / "sys/bus/pci/devices"
    devices.rename(machine / "devices")
    devices.write_text("not a directory")
    later = driver.get_available_resource(HOST)
    assert not later.pci.is_fresh  # devices keep their last known pins and are not reported as free
    assert guests_of(later) == guests_of(snapshot)


def test_a_default_runtime_that_was_never_read_may_obey_the_environment(driver_on_stub, stub):
    container = describe_container(1)
    container["Config"]["Env"] = ["NVIDIA_VISIBLE_DEVICES=all"]
    stub.add(container)
    driver = driver_on_stub.driver()
    stub.statuses["/info"] = (500, "broken")
    [before] = guests_of(driver.get_available_resource(HOST)).values()
    assert before.details["gpus"] == "all"
    del stub.statuses["/info"]
    driver.refresh()
    driver_on_stub.now += 3600
    [after] = guests_of(driver.get_available_resource(HOST)).values()
    assert "gpus" not in after.details  # runc does not
    stub.statuses["/info"] = (500, "broken")
    driver_on_stub.now += 3600
    assert guests_of(driver.get_available_resource(HOST)) == {after.name: after}


class TestDisk:
    """The filesystem of the engine's root directory is the node's disk."""

    def roots(self, driver_on_stub, options):
        proc = driver_on_stub.directory / "proc"
        (proc / "self").mkdir(parents=True, exist_ok=True)
        line = f"36 1 98:0 / {driver_on_stub.root} rw - xfs /dev/sda1 rw,{options}\n"
        (proc / "self/mountinfo").write_text("1 1 98:1 / / rw - ext4 /dev/sda10 rw\n" + line)
        return Roots(procfs=proc, rootfs=driver_on_stub.root)

    def test_quotas_are_noticed_after_a_remount(self, driver_on_stub):
        driver = driver_on_stub.driver(roots=self.roots(driver_on_stub, "noquota"))
        assert not driver.get_available_resource(HOST).engine.value.has_disk_quotas
        self.roots(driver_on_stub, "prjquota")
        assert driver.get_available_resource(HOST).engine.value.has_disk_quotas

    def test_quotas_are_noticed_while_the_report_is_current(self, driver_on_stub):
        driver = driver_on_stub.driver(roots=self.roots(driver_on_stub, "prjquota"))
        listen(driver)
        driver_on_stub.now += 1
        assert driver.get_available_resource(HOST).engine.value.has_disk_quotas
        self.roots(driver_on_stub, "noquota")
        assert not driver.get_available_resource(HOST).engine.value.has_disk_quotas

    def test_the_root_directory_is_measured_below_rootfs(self, driver_on_stub, stub):
        stub.info["DockerRootDir"] = "/var/lib/docker"
        storage = driver_on_stub.driver().get_available_resource(HOST).storage.value
        assert storage.instances.path == str(driver_on_stub.root / "var/lib/docker")

    def test_a_missing_image_store_holds_the_disk_and_names_the_option(self, driver_on_stub, stub):
        (driver_on_stub.root / "var/lib/docker").mkdir(parents=True, exist_ok=True)
        stub.info |= {
            "DockerRootDir": "/var/lib/docker",
            "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
            "Containerd": {"Address": "/run/k3s/containerd/containerd.sock"},
        }
        storage = driver_on_stub.driver().get_available_resource(HOST).storage
        assert storage.value is None
        assert storage.source.endswith("/var/lib/docker/containerd/daemon")
        assert storage.error.startswith("does not exist; [docker] image_store_path says")

    def test_the_share_for_images_is_reserved(self, driver_on_stub):
        snapshot = driver_on_stub.driver(reserve_disk_for_image=0.25).get_available_resource(HOST)
        storage = snapshot.storage.value
        assert storage.reserved_mb == storage.instances.total_mb // 4
        values = account(snapshot, None, Policy(), NOW).values
        assert values.reserved["disk_mb"] == storage.reserved_mb
        assert values.local_gb == storage.instances.total_mb // 1024

    def test_the_disk_is_measured_while_the_engine_is_down(self, driver_on_stub, stub):
        driver = driver_on_stub.driver()
        driver.get_available_resource(HOST)
        stub.stop()
        assert driver.get_available_resource(HOST).storage.is_fresh


class TestEvents:
    """The event stream is reopened whenever it ends."""

    def test_a_stream_that_ends_is_reopened_and_both_are_reported(self, driver_on_stub, stub):
        events = listen(driver_on_stub.driver())
        stub.end_streams()
        assert events.get(timeout=PATIENCE).kind is EventKind.SOURCE
        assert events.get(timeout=PATIENCE).kind is EventKind.SOURCE
        stub.send_event(event_of(1, "destroy"))
        assert events.get(timeout=PATIENCE).kind is EventKind.GONE

    def test_events_arrive_from_an_engine_that_starts_later(self, driver_on_stub, stub):
        stub.stop()
        events = queue.Queue()
        driver_on_stub.driver().events(events.put)
        stub.start()
        assert events.get(timeout=PATIENCE).kind is EventKind.SOURCE

    def test_an_event_names_its_workload(self, driver_on_stub, stub):
        events = listen(driver_on_stub.driver())
        event = event_of(1, "die")
        event["Actor"]["Attributes"][WORKLOAD_LABEL] = UUID
        stub.send_event(event)
        event = events.get(timeout=PATIENCE)
        assert (event.nodename, event.kind, event.workload_uuid) == (HOST, EventKind.STOPPED, UUID)

    def test_neither_guests_nor_events_have_the_uuid_of_a_label_that_is_not_trusted(
        self, driver_on_stub, stub
    ):
        driver = driver_on_stub.driver(trusts_labels=False)
        raw = describe_container(1)
        raw["Config"]["Labels"] = {WORKLOAD_LABEL: UUID}
        stub.add(raw)
        own = guests_of(driver.get_available_resource(HOST))["web-1"].uuid
        events = listen(driver)
        event = event_of(1, "destroy")
        event["Actor"]["Attributes"][WORKLOAD_LABEL] = UUID
        stub.send_event(event)
        assert events.get(timeout=PATIENCE).workload_uuid == own != UUID

    def test_an_event_with_a_time_to_come_hides_no_later_one(self, stub):
        events, sources = queue.Queue(), queue.Queue()
        watch = EventListener(EngineClient(stub.url, PATIENCE), events.put, lambda: sources.put(1))
        watch.start()
        try:
            sources.get(timeout=PATIENCE)
            for number, nano in enumerate((2**63 - 1, 10**400, -1, "x", [], True), 1):
                stub.send_event(event_of(number) | {"timeNano": nano})
            stub.send_event(event_of(9))
            found = [events.get(timeout=PATIENCE).container_id for _ in range(7)]
            assert found == [f"{number:064x}" for number in (1, 2, 3, 4, 5, 6, 9)]
        finally:
            watch.stop()

    def test_an_idle_stream_is_reopened_without_an_event(self, stub):
        events, sources = queue.Queue(), queue.Queue()
        client = EngineClient(stub.url, PATIENCE)
        watch = EventListener(client, events.put, lambda: sources.put(1), idle_seconds=0.2)
        watch.start()
        try:
            wait_until(lambda: stub.requests.count("/events") >= 3)
            for _ in range(2):  # the second one is a replay
                stub.send_event(event_of(1))
            stub.send_event(event_of(2, at=2))
            assert [events.get(timeout=PATIENCE).container_id for _ in range(2)] == [
                f"{1:064x}",
                f"{2:064x}",
            ]
            assert watch.is_live
            assert sources.qsize() == 1
            assert events.empty()
        finally:
            watch.stop()

    def test_a_frozen_engine_is_detected(self, stub):
        sources = queue.Queue()
        client = EngineClient(stub.url, 1)
        watch = EventListener(client, lambda event: None, lambda: sources.put(1), idle_seconds=0.5)
        watch.start()
        try:
            sources.get(timeout=PATIENCE)
            stub.is_open.clear()
            sources.get(timeout=PATIENCE)
            wait_until(lambda: not watch.is_live)
            stub.is_open.set()
            sources.get(timeout=PATIENCE)
            wait_until(lambda: watch.is_live)
        finally:
            stub.is_open.set()
            watch.stop()

    @pytest.mark.parametrize("bad", ["x" * (2 << 20), None], ids=["long", "invalid"])
    def test_an_event_that_cannot_be_read_loses_no_other(self, stub, bad):
        events, sources = queue.Queue(), queue.Queue()
        client = EngineClient(stub.url, PATIENCE)
        watch = EventListener(client, events.put, lambda: sources.put(1))
        watch.start()
        try:
            sources.get(timeout=PATIENCE)
            stub.send_event(event_of(1) | {"long": bad} if bad else "no object")
            for _ in range(2):  # that events may have been missed, and that none are any more
                sources.get(timeout=PATIENCE)
            assert "since" not in stub.queries["/events"]  # or it would come again
            stub.send_event(event_of(2, at=2))
            assert events.get(timeout=PATIENCE).container_id == f"{2:064x}"
            assert watch.is_live
        finally:
            watch.stop()

    def test_closing_ends_the_thread(self, driver_on_stub):
        driver = driver_on_stub.driver()
        others = threading.enumerate()  # those of earlier tests may not have ended yet
        listen(driver)
        threads = [t for t in threading.enumerate() if t not in others]
        (thread,) = (t for t in threads if t.name == "docker-events")
        driver.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/var/run/docker.sock", "unknown scheme"),
        ("ssh://root@host", "unknown scheme"),
        ("tcp://user:s3cret@host:2376", "must not contain a user or password"),
        ("unix://", "expected an absolute path"),
        ("unix:///", "expected an absolute path"),
        ("unix://run/docker.sock", "expected an absolute path"),
        ("unix:///" + "a" * 107, "longer than 107 bytes"),
        ("unix:///run/docker.sock?version=1", "must not have a query or fragment"),
        ("tcp://", "expected a host and a port"),
        ("tcp://:2375", "expected a host and a port"),
        ("https://engine", "expected a host and a port"),
        ("tcp://engine:0", "expected a host and a port"),
        ("tcp://engine:99999", "Port out of range"),
        ("tcp://engine:docker", "Port could not be cast"),
    ],
)
def test_an_invalid_url_is_a_configuration_error(tmp_path, url, text):
    values = {option.dest: option.default for option in PLUGIN.options} | {"base_url": [url]}
    environment = DriverEnvironment(HOST, str(tmp_path), Roots(), ProbeRunner(1))
    with pytest.raises(ConfigError, match=text) as caught:
        PLUGIN.build(environment, values)
    assert "s3cret" not in str(caught.value)


def test_the_error_has_the_reason_why_an_engine_does_not_answer(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left))
    reasons = {
        f"tcp://127.0.0.1:{port}": "Connection refused",
        "tcp://engine.invalid:2375": "Name or service not known",
        f"unix://{left}": "Connection refused",
        f"unix://{tmp_path}/none.sock": "No such file or directory",
    }
    for url, reason in reasons.items():
        with pytest.raises(DriverUnavailableError) as caught:
            EngineClient(url, PATIENCE).ping()
        assert caught.value.source == url
        assert caught.value.reason == reason


@pytest.mark.parametrize("text", ["[]", '{"proxies": []}', '{"auths": 3}'])
def test_an_invalid_docker_configuration_file_is_reported_and_ends_no_thread(
    driver_on_stub, monkeypatch, text
):
    path = driver_on_stub.directory / "config.json"
    path.write_text(text)
    monkeypatch.setenv("DOCKER_CONFIG", str(driver_on_stub.directory))
    events = queue.Queue()
    driver = driver_on_stub.driver()
    driver.events(events.put)
    reason = "the Docker configuration file of the agent's user is invalid"
    assert errors_of(driver.get_available_resource(HOST))["guests"] == reason
    path.unlink()
    assert events.get(timeout=PATIENCE).kind is EventKind.SOURCE
    assert driver.get_available_resource(HOST).guests.is_fresh


@pytest.mark.parametrize(
    ("status", "reason"), [(200, "answered with invalid JSON"), (404, "answered 404: no such page")]
)
def test_a_server_that_is_not_an_engine_is_an_error(status, reason):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"no such page")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        client = EngineClient(f"tcp://127.0.0.1:{server.server_port}", PATIENCE)
        for ask in (client.info, client.list_containers, client.get_disk_usage):
            with pytest.raises(HostDataError) as caught:
                ask()
            assert caught.value.reason == reason
    finally:
        server.shutdown()
        server.server_close()


def test_a_socket_without_permission_is_an_error(stub):
    require_root("give the right to a socket away")
    stub.socket.chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(DriverUnavailableError) as caught:
            EngineClient(stub.url, PATIENCE).ping()
    finally:
        os.seteuid(0)
    assert str(caught.value) == f"{stub.url}: Permission denied"
