"""Disks that count as usage: those in the storage whose capacity is the node's disk."""

from types import SimpleNamespace

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.connection import BulkClients, Session
from nodetracker.virt.libvirt.domain import DomainDisk
from nodetracker.virt.libvirt.hypervisor import HypervisorReader
from nodetracker.virt.libvirt.storage import DiskSizes, GuestDisk, StorageScope
from nodetracker.virt.libvirt.types import (
    DomainStatistics,
    HypervisorEndpoint,
    Identity,
    LibvirtSettings,
    PoolInfo,
)
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner

GIB = 2**30
UUID = "00000000-0000-4000-8000-000000000001"
FILES = StorageScope()
LVM = StorageScope("lvm", "images", "my-vg")
RBD = StorageScope("rbd", "ceph", "vms")


def disk(kind, path="", protocol="", pool=""):
    device = DomainDisk("vda", kind, path, protocol=protocol, pool=pool)
    return GuestDisk(UUID, "web", device, DiskSizes(GIB))


@pytest.mark.parametrize(
    ("found", "scopes"),
    [
        (disk("file", "/srv/a.img"), [FILES]),
        (disk("volume", pool="images"), [FILES, LVM]),
        (disk("volume", pool="ceph"), [FILES, RBD]),
        (disk("network", protocol="rbd", pool="vms"), [RBD]),
        (disk("network", protocol="rbd", pool="volumes"), []),
        (disk("network", protocol="iscsi", pool="vms"), []),
        (disk("block", "/dev/my-vg/a_disk"), [LVM]),
        (disk("block", "/dev/mapper/my--vg-a_disk"), [LVM]),
        (disk("block", "/dev/mapper/my--vg--2-a_disk"), []),
        (disk("block", "/dev/other/a_disk"), []),
        (disk("block", "/dev/sdb"), []),
    ],
    ids=lambda value: (
        f"{value.device.kind} {value.device.path or value.device.pool}"
        if isinstance(value, GuestDisk)
        else ""
    ),
)
def test_a_disk_is_in_the_scope_of_its_storage(found, scopes):
    assert [scope for scope in (FILES, LVM, RBD) if scope.contains(found)] == scopes


def test_while_the_pool_is_unknown_the_kind_of_a_disk_decides():
    assert StorageScope("rbd").contains(disk("network", protocol="rbd", pool="volumes"))
    assert StorageScope("lvm").contains(disk("block", "/dev/sdb"))
    assert not StorageScope("lvm").contains(disk("file", "/srv/a.img"))


DISKS = (
    "<disk type='file'><source file='/srv/a.img'/><target dev='vda'/></disk>",
    "<disk type='network'><source protocol='rbd' name='vms/a'/><target dev='vdb'/></disk>",
    "<disk type='network'><source protocol='rbd' name='volumes/a'/><target dev='vdc'/></disk>",
    "<disk type='block'><source dev='/dev/my-vg/a'/><target dev='vdd'/></disk>",
    "<disk type='block'><source dev='/dev/sdb'/><target dev='vde'/></disk>",
)


class Client:
    """A hypervisor with one guest of five disks of 1, 2, 4, 8 and 16 GiB, and three pools."""

    def __init__(self):
        self.capacities = {"vda": 1, "vdb": 2, "vdc": 4, "vdd": 8, "vde": 16}
        self.has_pools = True
        self.file = "/srv/a.img"

    def __getattr__(self, name):
        def fail(*_):
            raise HostDataError("stub", f"{name} is not supported")

        return fail

    def list_domain_states(self):
        return [DomainStatistics(UUID, "web", {"state.state": 1})]

    def list_domain_resources(self):
        values = {"block.count": len(self.capacities)}
        for number, (target, size) in enumerate(self.capacities.items()):
            values |= {f"block.{number}.name": target, f"block.{number}.capacity": size * GIB}
        return [DomainStatistics(UUID, "web", values)]

    def get_domain_xml(self, _uuid):
        return (
            f"<domain><name>web</name><uuid>{UUID}</uuid><memory>1048576</memory>"
            f"<vcpu>1</vcpu><devices>{''.join(DISKS)}</devices></domain>"
        ).replace("/srv/a.img", self.file)

    def list_storage_pools(self):
        if not self.has_pools:
            raise HostDataError("stub", "has no pools")
        return [
            PoolInfo(
                name,
                f"<pool type='{kind}'><name>{name}</name><source><name>{source}</name></source>"
                f"<target><path>{target}</path></target></pool>",
                1000 * GIB,
                900 * GIB,
            )
            for name, kind, source, target in (
                ("default", "dir", "", "/srv"),
                ("images", "logical", "my-vg", "/dev/my-vg"),
                ("ceph", "rbd", "vms", ""),
            )
        ]


def read(client, images_type=None, uri="qemu+ssh://far/system", instances_path="/nowhere"):
    connection = SimpleNamespace(
        endpoint=HypervisorEndpoint(uri),
        check_alive=lambda: None,
        pop_changed_domains=frozenset,
        pop_devices_changed=lambda: False,
        requeue_changed_domains=lambda dirty: None,
    )
    environment = DriverEnvironment("host-1", str(instances_path), Roots(), ProbeRunner(5))
    clients = BulkClients(client, lambda: client)
    session = Session(client, clients, Identity("far", "QEMU", 8002001), 1)
    settings = LibvirtSettings(images_type=images_type)
    return HypervisorReader(connection, session, environment, settings).read("far")


@pytest.mark.parametrize(
    ("images_type", "charged_gb", "without_pools_gb"),
    [(None, 1, 1), ("rbd", 2, 2 + 4), ("lvm", 8, 8 + 16)],
)
def test_a_guest_is_charged_its_disks_in_the_node_s_storage(
    images_type, charged_gb, without_pools_gb
):
    client = Client()
    snapshot = read(client, images_type)
    assert snapshot.storage.value.instances.total_mb == 1000 * 1024
    (guest,) = snapshot.guests.value.guests
    assert guest.disk_mb == charged_gb * 1024
    own = {None: "vda", "rbd": "vdb", "lvm": "vdd"}[images_type]
    assert guest.details["disks_elsewhere"] == [name for name in client.capacities if name != own]
    client.has_pools = False  # the volume group or Ceph pool is unknown then
    snapshot = read(client, images_type)
    assert [guest.disk_mb for guest in snapshot.guests.value.guests] == [without_pools_gb * 1024]


def test_a_disk_of_unknown_size_raises_a_warning():
    client = Client()
    client.capacities = {
        "vda": 1
    }  # as for a guest that is off, whose other images were never opened
    snapshot = read(client, "rbd")
    assert [guest.disk_mb for guest in snapshot.guests.value.partial] == [None]
    assert snapshot.guests.is_fresh  # libvirt answers: it does not know the size
    (warning,) = [warning for warning in snapshot.warnings if warning.item == "web/vdb"]
    assert "its size is unknown" in warning.message


@pytest.mark.parametrize(("place", "charged_gb"), [("here", 1), ("missing", 1), ("/proc", 0)])
def test_a_file_counts_only_on_the_node_s_filesystem(tmp_path, place, charged_gb):
    (tmp_path / "here").touch()
    client = Client()
    client.file = str(tmp_path / place) if place != "/proc" else "/proc/version"
    snapshot = read(client, uri="qemu:///system", instances_path=tmp_path)
    (guest,) = snapshot.guests.value.guests
    assert guest.disk_mb == charged_gb * 1024
    assert ("vda" in guest.details["disks_elsewhere"]) == (not charged_gb)
    growth_gb = 1 if place == "here" else 0
    assert snapshot.storage.value.overcommitted_mb == growth_gb * 1024


def test_gpus_of_this_machine_do_not_need_libvirt(tmp_path):
    snapshot = read(Client(), uri="qemu:///system", instances_path=tmp_path)
    assert "list_pci_names is not supported" in snapshot.pci.error
    assert snapshot.gpus.is_fresh
