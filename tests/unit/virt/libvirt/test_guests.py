"""Guests: caching of documents, states, invalid documents."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import PowerState
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import PciDevice, PciDeviceType
from nodetracker.virt.device_nodes import DeviceNodes
from nodetracker.virt.libvirt.guests import (
    DOM0_UUID,
    REREAD_SECONDS,
    DomainReader,
    bind_uses,
    build_guest,
)
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.use import UseResolver


def uuid_of(name):
    return f"00000000-0000-4000-8000-{ord(name):012d}"


class Hypervisor:
    def __init__(self, *names):
        self.now = 0.0
        self.vcpus = dict.fromkeys(names, 1)
        self.states = dict.fromkeys(names, (1, 1))
        self.disks = {}
        self.devices = dict.fromkeys(names, "")
        self.vcpus_max = {}
        self.broken = set()
        self.locked = set()
        self.read_names = []
        self.saved = set()
        self.reader = DomainReader(
            self.read_xml, lambda: self.now, lambda uuid: uuid in map(uuid_of, self.saved)
        )

    def read_xml(self, uuid):
        name = next((name for name in self.vcpus if uuid_of(name) == uuid), None)
        self.read_names.append(name)
        if name is None:
            return None
        if name in self.locked:
            raise HostDataError(f"domain {uuid}", "cannot acquire state change lock")
        if name in self.broken:
            return "<domain/>"
        return f"""<domain><name>{name}</name><uuid>{uuid}</uuid><memory>1048576</memory>
          <vcpu current='{self.vcpus[name]}'>{self.vcpus_max.get(name, self.vcpus[name])}</vcpu>
          <devices>{self.devices[name]}
          <disk type='file'><source file='/{name}.img'/><target dev='vda'/></disk>
          <disk type='network'><target dev='vdb'/></disk></devices></domain>"""

    def listed(self, *more):
        return [
            DomainStatistics(
                uuid_of(name),
                name,
                dict(zip(("state.state", "state.reason"), self.states[name], strict=True)),
            )
            for name in (*self.vcpus, *more)
        ]

    def resources(self):
        return [
            DomainStatistics(
                uuid_of(name),
                name,
                {
                    "vcpu.current": count, "vcpu.maximum": count, "balloon.maximum": 1048576,
                    "block.count": 1, "block.0.name": "vda", "block.0.path": f"/{name}.img",
                } | self.disks.get(name, {}),
            )
            for name, count in self.vcpus.items()
        ]  # fmt: skip

    def read(self, *changed, has_resources=True):
        self.read_names.clear()
        resources = self.resources() if has_resources else None
        domains = self.reader.read(self.listed(), resources, {uuid_of(name) for name in changed})
        return [build_guest(listed, 0, "", (), {}, NumaTopology()) for listed in domains]

    def vcpus_seen(self):
        return {guest.name: guest.vcpu_milli for guest in self.read()}


def test_the_control_domain_of_xen_is_no_guest():
    host = Hypervisor("a")
    states = [*host.listed(), DomainStatistics(DOM0_UUID, "Domain-0", {"state.state": 1})]
    assert [listed.state.name for listed in host.reader.read(states, None, ())] == ["a"]


def test_documents_are_read_once():
    host = Hypervisor("a", "b")
    assert host.vcpus_seen() == {"a": 1000, "b": 1000}
    assert sorted(host.read_names) == ["a", "b"]
    host.read()
    assert host.read_names == []


def test_an_event_or_changed_statistics_cause_a_document_to_be_read_again():
    host = Hypervisor("a", "b", "c")
    host.read()
    host.vcpus["a"] = 4
    host.read("b")
    assert sorted(host.read_names) == ["a", "b"]
    assert host.vcpus_seen() == {"a": 4000, "b": 1000, "c": 1000}


def test_plugging_in_a_vcpu_causes_a_document_to_be_read_again():
    host = Hypervisor("a")
    for plugged, expected in ((1, ["a"]), (1, []), (2, ["a"])):
        host.disks["a"] = {
            "vcpu.current": 2, "vcpu.maximum": 3, "vcpu.0.state": 1, f"vcpu.{plugged}.state": 1,
        }  # fmt: skip
        host.read()
        assert host.read_names == expected


def test_every_document_is_read_again_at_its_maximum_age():
    host = Hypervisor("a")
    host.read()
    host.now = REREAD_SECONDS
    host.read()
    assert host.read_names == ["a"]


def test_only_a_domain_that_is_off_has_a_saved_state():
    host = Hypervisor("a", "b")
    host.saved = {"a", "b"}
    host.states["a"] = (5, 5)
    assert [entry.domain.is_saved for entry in host.reader.read(host.listed(), None, ())] == [
        True,
        False,
    ]


def test_a_saved_state_is_seen_although_its_event_came_before_the_document_was_read():
    host = Hypervisor("a")
    host.saved = {"a"}
    (entry,) = host.reader.read(host.listed(), None, [uuid_of("a")])
    assert not entry.domain.is_saved
    host.states["a"] = (5, 5)
    (entry,) = host.reader.read(host.listed(), None, ())
    assert entry.domain.is_saved


def test_every_document_is_read_again_after_a_refresh():
    host = Hypervisor("a", "b")
    host.read()
    host.reader.refresh()
    host.read()
    assert host.read_names == ["a", "b"]
    host.read()
    assert host.read_names == []


def test_without_statistics_the_last_documents_are_used():
    host = Hypervisor("a")
    host.read()
    assert [guest.vcpu_milli for guest in host.read(has_resources=False)] == [1000]
    assert host.read_names == []


def test_an_invalid_document_is_reported_and_the_other_guests_are_listed():
    host = Hypervisor("a", "b")
    host.broken = {"a"}
    broken, whole = host.read()
    assert (broken.name, broken.problem) == ("a", "domain a: has no <name>")
    assert (broken.vcpu_milli, broken.memory_mb, broken.disk_mb) == (None, None, None)
    assert broken.power_state is PowerState.RUNNING
    assert (whole.name, whole.vcpu_milli) == ("b", 1000)
    host.broken = set()
    assert [guest.vcpu_milli for guest in host.read("a")] == [1000, 1000]


def test_a_domain_that_cannot_be_read_is_reported_as_last_read_and_read_again():
    host = Hypervisor("a", "b")
    host.locked = {"a"}
    unknown, whole = host.read()
    problem = "domain a: cannot acquire state change lock"
    assert (unknown.vcpu_milli, unknown.problem) == (None, problem)
    assert (whole.name, whole.vcpu_milli) == ("b", 1000)
    host.locked = set()
    assert [guest.vcpu_milli for guest in host.read()] == [1000, 1000]
    host.vcpus["a"] = 2
    host.locked = {"a"}
    for _ in range(2):
        known, _whole = host.read("a")
        assert (known.vcpu_milli, known.problem) == (1000, problem)
    host.locked = set()
    assert [guest.vcpu_milli for guest in host.read()] == [2000, 1000]


def test_a_domain_that_disappears_while_it_is_read_is_left_out():
    host = Hypervisor("a")
    host.states["b"] = (1, 1)
    domains = host.reader.read(host.listed("b"), [], set())
    assert [listed.domain.name for listed in domains] == ["a"]


@pytest.mark.parametrize(
    ("state", "power_state"),
    [
        ((1, 1), PowerState.RUNNING),
        ((2, 0), PowerState.RUNNING),
        ((3, 1), PowerState.PAUSED),
        ((3, 11), PowerState.RUNNING),
        ((4, 1), PowerState.RUNNING),
        ((5, 1), PowerState.SHUTDOWN),
        ((6, 0), PowerState.CRASHED),
        ((7, 0), PowerState.SUSPENDED),
        ((0, 0), PowerState.NOSTATE),
        ((99, 0), PowerState.NOSTATE),
    ],
)
def test_domain_states_map_to_nova_s_power_states(state, power_state):
    host = Hypervisor("a")
    host.states["a"] = state
    (guest,) = host.read()
    assert guest.power_state is power_state


def test_details_have_memory_that_is_not_charged_as_it_is():
    host = Hypervisor("a")
    host.devices["a"] = """
      <memory model='nvdimm'><source><path>/f</path></source>
        <target><size unit='MiB'>512</size></target></memory>
      <memory model='virtio-mem'><target><size unit='MiB'>32</size>
        <requested unit='MiB'>16</requested></target></memory>"""
    (guest,) = host.read()
    assert guest.details == {
        "persistent_memory_mb": 512,
        "virtio_mem": [{"size_mb": 32, "requested_mb": 16, "current_mb": 0}],
    }


def test_details_have_the_maximum_of_vcpus_and_other_host_devices():
    host = Hypervisor("a", "b")
    host.vcpus_max["a"] = 8
    host.devices["a"] = """<hostdev mode='subsystem' type='usb'><source>
      <vendor id='0x1'/><product id='0x2'/></source></hostdev>"""
    guests = {guest.name: guest for guest in host.read()}
    assert guests["a"].details == {"vcpus_max": 8, "host_devices": ["usb 0x1 0x2"]}
    assert guests["a"].vcpu_milli == 1000
    assert guests["b"].details == {}


@pytest.mark.parametrize(
    ("state", "nodes", "devices", "unresolved"),
    [
        ((1, 1), {"a-b": "0000:82:00.0"}, ("0000:82:00.0",), []),
        ((5, 1), {"a-b": "0000:82:00.0"}, ("0000:82:00.0",), []),
        ((1, 1), {}, (), ["0000:82:00.0", "0000:83:00.0"]),
        ((5, 1), {}, (), []),
        ((6, 1), {}, (), ["0000:82:00.0", "0000:83:00.0"]),
    ],
    ids=["known", "known and off", "unknown", "unknown and off", "unknown and crashed"],
)
def test_a_mediated_device_is_a_use_of_its_parent(state, nodes, devices, unresolved):
    hypervisor = Hypervisor("a")
    hypervisor.devices["a"] = (
        "<hostdev mode='subsystem' type='mdev'><source><address uuid='A-B'/></source></hostdev>"
    )
    hypervisor.states["a"] = state
    listed, *_ = hypervisor.reader.read(hypervisor.listed(), hypervisor.resources(), set())
    guest = build_guest(listed, 0, "", (), {}, NumaTopology())
    resolver = UseResolver((), (), DeviceNodes(mdevs=nodes))
    bound = bind_uses(guest, listed, resolver, {"0000:83:00.0", "0000:82:00.0"})
    assert bound.pins.devices == devices
    assert [use.within for use in bound.pins.unresolved] == unresolved


def test_interfaces_and_nodes_of_the_host_are_uses_of_their_functions():
    hypervisor = Hypervisor("a")
    hypervisor.devices["a"] = """
      <interface type='direct'><source dev='ens1f0v0' mode='passthrough'/></interface>
      <interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>
      <disk type='block'><source dev='/dev/nvme0n1'/><target dev='vdc'/></disk>
      <disk type='vhostvdpa'><source dev='/dev/vhost-vdpa-1'/><target dev='vdd'/></disk>
      <graphics type='egl-headless'><gl rendernode='/dev/dri/renderD128'/></graphics>"""
    listed, *_ = hypervisor.reader.read(hypervisor.listed(), hypervisor.resources(), set())
    guest = build_guest(listed, 0, "", (), {}, NumaTopology())
    vf = PciDevice("0000:81:10.0", "8086", "10ed", dev_type=PciDeviceType.VF)
    nodes = DeviceNodes(
        drm={"renderD128": "0000:c1:00.0"},
        vdpa={"vhost-vdpa-0": "0000:82:00.2", "vhost-vdpa-1": "0000:82:00.3"},
        nodes={"/dev/nvme0": "0000:01:00.0"},
        netdevs={"ens1f0v0": frozenset({vf.address})},
    )
    bound = bind_uses(guest, listed, UseResolver((vf,), (), nodes), ())
    assert bound.pins.devices == (
        "0000:81:10.0",
        "0000:82:00.2",
        "0000:82:00.3",
        "0000:c1:00.0",
    )
    assert [use.within for use in bound.pins.unresolved] == ["0000:01:00.0"]
