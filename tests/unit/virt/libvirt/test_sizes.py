"""Sizes of disks: from bulk statistics, images, pools, and emulators queried separately."""

import threading

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.connection import BulkClients
from nodetracker.virt.libvirt.domain import Domain, DomainDisk
from nodetracker.virt.libvirt.guests import ListedDomain
from nodetracker.virt.libvirt.sizes import KNOWN_SECONDS, DiskSizeReader
from nodetracker.virt.libvirt.storage import DiskSizes, StorageScope
from nodetracker.virt.libvirt.types import DomainStatistics
from tests.probes import SelectiveProbeRunner

GIB = 2**30
RUNNING, PAUSED, OFF = 1, 3, 5


class Host:
    """A hypervisor whose guests have one disk each; sizes in GiB."""

    def __init__(self, is_local=False):
        self.now = 0.0
        self.devices = {}
        self.states = {}
        self.reported = {}
        self.emulators = {}
        self.volumes = {}
        self.queries = []
        self.probes = SelectiveProbeRunner(1.0)
        self.reader = DiskSizeReader(
            "stub",
            is_local,
            self.get_volume_sizes,
            BulkClients(self, lambda: self),
            self.probes,
            lambda: self.now,
        )

    def add(self, name, state=RUNNING, device=None, reported=None):
        self.devices[name] = device or DomainDisk("vda", "file", f"/{name}.img")
        self.states[name] = state
        self.reported[name] = reported

    def hang(self, name, gate):
        """Let a guest's emulator answer no query until the gate opens."""
        self.emulators[name] = gate
        self.probes.hanging.add(f"domain {name}")

    # The client.

    def get_volume_sizes(self, pool, volume):
        self.queries.append(f"{pool}/{volume}")
        if volume not in self.volumes:
            raise HostDataError("stub", f"no storage vol with matching name '{volume}'")
        return DiskSizes(self.volumes[volume] * GIB, 0)

    def get_disk_sizes(self, uuid, targets):
        self.queries.append(uuid)
        size = self.emulators[uuid]
        if isinstance(size, threading.Event):
            size.wait(60)
            raise HostDataError("stub", "cannot acquire state change lock")
        return {target: DiskSizes(size * GIB) for target in targets}

    def close(self):
        pass

    # Readings.

    def statistics(self, name):
        size = self.reported[name]
        values = {
            "state.state": self.states[name],
            "block.count": 1,
            "block.0.name": self.devices[name].target,
        }
        if size is not None:
            values |= {"block.0.rd.reqs": 1, "block.0.capacity": size * GIB}
        return DomainStatistics(name, name, values)

    def read(self, has_bulk=True):
        listed = [
            ListedDomain(DomainStatistics(name, name), Domain(name, name, 1, 1, 1, (device,)))
            for name, device in self.devices.items()
        ]
        bulk = [self.statistics(name) for name in self.devices] if has_bulk else None
        self.queries.clear()
        return self.reader.read("n", listed, bulk, StorageScope())

    def sizes(self, **more):
        disks = self.read(**more).disks
        return {disk.owner: disk.sizes.capacity and disk.sizes.capacity // GIB for disk in disks}


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_reported_sizes_need_no_query():
    host = Host()
    host.add("web", reported=5)
    assert host.sizes() == {"web": 5}
    assert host.queries == []


def test_without_statistics_the_last_sizes_are_used_and_nobody_is_queried():
    host = Host()
    host.add("web", reported=5)
    host.read()
    host.add("db")
    assert host.sizes(has_bulk=False) == {"web": 5, "db": None}
    assert host.queries == []


def test_a_size_that_is_not_reported_any_more_is_the_last_one_of_the_same_image():
    host = Host()
    host.add("web", OFF, reported=5)
    host.read()
    host.reported["web"] = None
    assert host.sizes() == {"web": 5}
    host.devices["web"] = DomainDisk("vda", "file", "/another.img")
    assert host.sizes() == {"web": None}


def test_a_guest_that_statistics_passed_over_is_queried():
    host = Host()
    host.add("web")
    host.emulators = {"web": 5}
    assert host.sizes() == {"web": 5}
    assert host.read().silent == {}
    host.reported["web"] = 6
    assert host.sizes() == {"web": 6}
    assert host.queries == []


@pytest.mark.parametrize(("state", "is_queried"), [(PAUSED, False), (OFF, False), (RUNNING, True)])
def test_whether_a_guest_of_known_size_answers_is_checked_while_it_runs(state, is_queried):
    host = Host()
    host.add("web", state, reported=5)
    host.read()
    host.reported["web"] = None  # a start, a migration, or another client's query
    host.emulators = {"web": 5}
    assert host.sizes() == {"web": 5}
    assert host.queries == ["web"] * is_queried


def test_an_emulator_that_hangs_is_named_and_not_queried_again_until_its_call_returns(gate):
    host = Host()
    host.add("web", reported=5)
    host.read()
    host.add("db", reported=2)
    host.reported["web"] = None
    host.hang("web", gate)
    for queries in (["web"], []):
        reading = host.read()
        assert reading.silent == {"web": "domain web: its emulator does not answer"}
        assert [disk.sizes.capacity for disk in reading.disks] == [5 * GIB, 2 * GIB]
        assert host.queries == queries


def test_beside_hung_emulators_the_rest_is_known_and_few_calls_hang(gate):
    host = Host()
    for number in range(10):
        host.add(f"vm-{number}")
        host.hang(f"vm-{number}", gate)
    silent = host.read().silent
    assert len(silent) == 10
    assert len(host.queries) == 4
    assert silent["vm-9"] == "domain vm-9: not queried while other guests do not answer"


def test_the_image_of_a_guest_that_starts_on_this_machine_is_read(tmp_path):
    image = tmp_path / "web.qcow2"
    image.write_bytes(b"QFI\xfb" + bytes(20) + (7 * GIB).to_bytes(8, "big"))
    host = Host(is_local=True)
    host.add("web", PAUSED, DomainDisk("vda", "file", str(image), format="qcow2"))
    assert host.sizes() == {"web": 7}
    assert host.queries == []


def test_a_volume_is_queried_from_its_pool_and_again_when_the_answer_is_old():
    host = Host()
    host.add("web", OFF, DomainDisk("vda", "volume", pool="images", volume="web.img"))
    host.volumes = {"web.img": 6}
    assert host.sizes() == {"web": 6}
    assert host.queries == ["images/web.img"]
    host.volumes = {"web.img": 8}
    assert host.sizes() == {"web": 6}
    host.now = KNOWN_SECONDS
    assert host.sizes() == {"web": 8}


def test_a_volume_that_is_resized_while_its_guest_is_off_is_queried_at_a_refresh():
    host = Host()
    host.add("web", OFF, DomainDisk("vda", "volume", pool="images", volume="web.img"))
    host.volumes = {"web.img": 6}
    assert host.sizes() == {"web": 6}
    host.volumes = {"web.img": 8}
    host.reader.refresh()
    assert host.sizes() == {"web": 8}
    assert host.sizes() == {"web": 8}
    assert host.queries == []


def test_a_size_from_when_its_guest_ran_is_queried_when_it_is_old():
    host = Host()
    host.add("web", device=DomainDisk("vda", "volume", pool="images", volume="web.img"), reported=6)
    assert host.sizes() == {"web": 6}
    host.states["web"], host.reported["web"] = OFF, None
    host.volumes = {"web.img": 8}
    assert host.sizes() == {"web": 6}
    host.now = KNOWN_SECONDS
    assert host.sizes() == {"web": 8}


def test_a_volume_that_is_unknown_is_named_with_its_pool():
    host = Host()
    host.add("web", OFF, DomainDisk("vda", "volume", pool="images", volume="web.img"))
    (disk,) = host.read().disks
    assert disk.unknown_size == (
        "volume web.img of pool images: its size is unknown: "
        "no storage vol with matching name 'web.img'"
    )


def test_disks_outside_the_node_s_storage_are_not_queried():
    host = Host()
    host.add("web", device=DomainDisk("vda", "network", protocol="rbd", pool="vms"))
    assert host.sizes() == {"web": None}
    assert host.queries == []
