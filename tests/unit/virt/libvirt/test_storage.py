"""Storage: overcommit of guests' disks, choice of the pool, the image cache."""

import dataclasses
import os

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Filesystem, StorageInfo
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.domain import DomainDisk
from nodetracker.virt.libvirt.storage import (
    DiskSizes,
    GuestDisk,
    NodeStorage,
    StorageScope,
    add_overcommit,
    choose_pool,
    find_shared,
    list_shared,
    measure_image_cache,
    sum_capacities,
)
from nodetracker.virt.libvirt.types import PoolInfo

MIB = 2**20


def disk(path="", capacity=100, allocation=0, kind="file", target="vda"):
    sizes = DiskSizes(None if capacity is None else capacity * MIB, allocation * MIB)
    return GuestDisk("uuid", "web", DomainDisk(target, kind, str(path)), sizes)


def sparse(path, written=0):
    with path.open("wb") as file:
        file.write(os.urandom(written * MIB))
        file.truncate(100 * MIB)
    return path


def measure(disks, is_local, device_id=0):
    """Return the storage of a filesystem with the overcommit of some disks."""
    storage = NodeStorage(
        StorageInfo(Filesystem("/", 0, 0, 0, device_id=device_id)), StorageScope()
    )
    return add_overcommit(storage, disks, Roots() if is_local else None)


def measure_mb(*arguments):
    return measure(*arguments).info.overcommitted_mb


def test_a_sparse_file_may_grow_to_its_size(tmp_path):
    path = sparse(tmp_path / "a.raw", written=4)
    assert 95 <= measure_mb([disk(path)], True, tmp_path.stat().st_dev) <= 96


@pytest.mark.parametrize(
    ("own", "of_the_guest", "is_charged"),
    [
        ("btrfs /dev/sda2", "btrfs /dev/sda2", True),
        ("btrfs /dev/sda2", "btrfs /dev/sdb1", False),
        ("zfs tank/vms", "zfs tank/data/vm-100", True),
        ("zfs tank/vms", "zfs backup/vm-100", False),
        ("ext4 /dev/sda2", "ext4 /dev/sda2", False),
    ],
)
def test_subvolumes_and_datasets_share_the_space_of_their_filesystem(
    tmp_path, own, of_the_guest, is_charged
):
    (tmp_path / "vm").mkdir()
    path = sparse(tmp_path / "vm/a.raw")
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.parent.mkdir(parents=True)
    mountinfo.write_text(f"27 1 0:44 / {tmp_path}/vm rw - {of_the_guest} rw\n")
    fs_type, device = own.split()
    filesystem = Filesystem("/srv", 0, 0, 0, device=device, fs_type=fs_type, device_id=-1)
    storage = NodeStorage(StorageInfo(filesystem), StorageScope())
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    found = add_overcommit(storage, [disk(path)], roots)
    assert found.info.overcommitted_mb == (100 if is_charged else 0)
    assert found.scope.elsewhere == (set() if is_charged else {("uuid", "vda")})


IMAGES = {
    "file": DomainDisk("vda", "file", "/srv/a.raw"),
    "block": DomainDisk("vda", "block", "/dev/my-vg/a"),
    "volume": DomainDisk("vda", "volume", pool="images", volume="a"),
    "rbd": DomainDisk("vda", "network", protocol="rbd", pool="vms", volume="a"),
}


@pytest.mark.parametrize("device", IMAGES.values(), ids=IMAGES)
def test_an_image_that_several_guests_have_counts_once(device):
    """The guest with the lowest uuid counts it, the others only where its size is unknown."""
    scopes = {"block": StorageScope("lvm", "images", "my-vg"), "network": StorageScope("rbd")}
    scope = scopes.get(device.kind, StorageScope())
    other = dataclasses.replace(device, target="vdb")
    sizes = DiskSizes(100 * MIB)
    disks = [GuestDisk("2", "b", other, sizes), GuestDisk("1", "a", device, sizes)]
    assert sum_capacities(find_shared(disks), scope) == {"1": 100 * MIB}
    assert list_shared(find_shared(disks)) == {"1": {"vda": ["b"]}, "2": {"vdb": ["a"]}}
    disks[1] = dataclasses.replace(disks[1], sizes=DiskSizes())
    assert sum_capacities(find_shared(disks), scope) == {"2": 100 * MIB}


def test_a_shared_file_can_grow_once(tmp_path):
    path = sparse(tmp_path / "a.raw")
    disks = [dataclasses.replace(disk(path), uuid=uuid) for uuid in "12"]
    assert measure_mb(find_shared(disks), True, tmp_path.stat().st_dev) == 100


def test_disks_whose_image_nothing_identifies_count_each():
    disks = [GuestDisk(uuid, uuid, DomainDisk("vda", "volume"), DiskSizes(MIB)) for uuid in "12"]
    assert sum_capacities(find_shared(disks), StorageScope()) == {"1": MIB, "2": MIB}


def test_a_file_on_another_filesystem_adds_no_overcommit(tmp_path):
    there = tmp_path.stat().st_dev + 1
    assert measure_mb([disk(sparse(tmp_path / "a.raw"))], True, there) == 0


def test_block_devices_and_network_disks_add_no_overcommit():
    disks = [disk("/dev/sdb", kind="block"), disk(kind="network")]
    assert measure_mb(disks, True) == 0


def test_an_allocation_above_the_capacity_is_not_negative_overcommit():
    assert measure_mb([disk("/far.qcow2", 100, 120)], False) == 0


def test_on_a_remote_machine_the_reported_allocation_is_used():
    assert measure_mb([disk("/far.qcow2", 100, 30)], False) == 70


@pytest.mark.parametrize("is_local", [True, False])
def test_a_disk_that_cannot_be_measured_is_reported_and_the_others_count(is_local, tmp_path):
    disks = [
        disk("/nowhere/a.qcow2", None),
        disk(sparse(tmp_path / "b.raw"), target="vdb"),
    ]
    found = measure(disks, is_local, tmp_path.stat().st_dev)
    assert 99 <= found.info.overcommitted_mb <= 100
    ((item, problem),) = found.problems
    assert item == "web/vda"
    assert "/nowhere/a.qcow2" in problem


def pool(name, type_="dir", target="", total=1000, free=400, source=""):
    xml = (
        f"<pool type='{type_}'><name>{name}</name><source><name>{source}</name></source>"
        f"<target><path>{target}</path></target></pool>"
    )
    return PoolInfo(name, xml, total * MIB, free * MIB)


def test_the_pool_with_most_of_the_guests_disks_is_the_node_s():
    pools = [pool("default", target="/images"), pool("fast", target="/fast", total=500, free=200)]
    disks = [disk("/fast/a"), disk("/fast/b"), disk("/images/c")]
    chosen = choose_pool(pools, disks, None, "libvirt")
    assert chosen.info.instances == Filesystem("/fast", 500, 300, 200, "fast", "dir")


def test_without_disks_it_is_the_default_pool_or_the_first():
    pools = [pool("b"), pool("default"), pool("a")]
    assert choose_pool(pools, [], None, "libvirt").scope.pool == "default"
    assert choose_pool([pool("b"), pool("a")], [], None, "libvirt").scope.pool == "a"


def test_the_type_of_images_decides_which_pools_fit():
    pools = [
        pool("default"),
        pool("vg", "logical", target="/dev/vg0"),
        pool("ceph", "rbd", source="vms"),
    ]
    assert choose_pool(pools, [], "lvm", "libvirt").scope == StorageScope("lvm", "vg", "vg0")
    assert choose_pool(pools, [], "rbd", "libvirt").scope == StorageScope("rbd", "ceph", "vms")


def test_no_pool_of_the_right_type_is_an_error():
    with pytest.raises(HostDataError, match="rbd"):
        choose_pool([pool("default")], [], "rbd", "libvirt")


def test_the_image_cache_is_measured_by_allocated_blocks(tmp_path):
    own = Filesystem("/srv", 0, 0, 0, device_id=tmp_path.stat().st_dev)
    cache = tmp_path / "_base"
    assert measure_image_cache(cache, own, Roots()) == 0
    cache.mkdir()
    (cache / "image").write_bytes(b"x" * 3 * 2**20)
    (cache / "sparse").touch()
    os.truncate(cache / "sparse", 2**30)
    (cache / "link").symlink_to(cache / "image")
    assert measure_image_cache(cache, own, Roots()) == 3
    other = dataclasses.replace(own, device_id=-1)
    assert measure_image_cache(cache, other, Roots()) == 0
