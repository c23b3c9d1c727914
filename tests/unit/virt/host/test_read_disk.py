"""Test reading disks and the filesystem that holds guests' disks."""

import os
import shutil
from pathlib import Path

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Disk
from nodetracker.virt.host import disk as disk_module
from nodetracker.virt.host import roots as roots_module
from nodetracker.virt.host.disk import (
    Mount,
    find_mount,
    parse_mountinfo,
    parse_vpd_serial,
    read_disks,
    read_filesystem,
    read_storage,
)
from nodetracker.virt.host.roots import Roots

BLOCK = "sys/block"


def disk(name: str, sectors: object = 2048, **files: str) -> dict[str, str]:
    """Write one disk; ``__`` in a keyword replaces ``/``."""
    texts = {name.replace("__", "/"): text for name, text in files.items()}
    texts["size"] = f"{sectors}\n"
    return {f"{BLOCK}/{name}/{path}": text for path, text in texts.items()}


def names(roots: Roots) -> list[str]:
    return [found.name for found in read_disks(roots).value]


def test_without_block_devices_there_are_no_disks(make_roots: MakeRoots) -> None:
    assert read_disks(make_roots()).value == ()


def test_a_disk_is_read(make_roots: MakeRoots) -> None:
    files = disk(
        "sda",
        3512991744,
        device__model="PERC H700       \n",
        device__numa_node="1\n",
        queue__rotational="1\n",
        serial="S1\n",
    )
    (only,) = read_disks(make_roots(files)).value
    assert only == Disk("sda", 1715328, "PERC H700", "S1", is_rotational=True, numa_node=1)


def test_only_whole_disks_that_hold_data_count(make_roots: MakeRoots) -> None:
    others = ["loop0", "ram1", "zram0", "dm-0", "md127", "sr0", "fd0", "bcache0", "zd16"]
    others += ["mmcblk0boot0", "mmcblk0rpmb"]
    files = disk("nvme0n1", 4096, queue__rotational="0\n") | disk("mmcblk0") | disk("sdb", 0)
    for name in others:
        files |= disk(name)
    files |= disk("sda1", partition="1\n") | disk("nvme0c0n1", hidden="1\n")
    roots = make_roots(files)
    assert names(roots) == ["mmcblk0", "nvme0n1"]
    assert not read_disks(roots).value[1].is_rotational


@pytest.mark.parametrize("name", ["drbd0", "drbd1000", "rbd0", "nbd3", "zram0", "md127", "dm-2"])
def test_without_links_to_hardware_names_tell_what_is_no_disk(
    make_roots: MakeRoots, name: str
) -> None:
    assert names(make_roots(disk("sda") | disk(name))) == ["sda"]


def test_a_disk_has_hardware_of_this_machine(make_roots: MakeRoots) -> None:
    files = disk("sda", device__model="A\n") | disk("newfs0") | disk("rbd0") | disk("sr0")
    roots = make_roots(files)
    for name, bus in (("rbd0", "rbd"), ("sda", "scsi"), ("sr0", "scsi")):
        directory = roots.sysfs / "block" / name / "device"
        directory.mkdir(exist_ok=True)
        (directory / "subsystem").symlink_to(f"../../../bus/{bus}")
    assert names(roots) == ["sda"]


def test_a_disk_with_several_paths_counts_once(make_roots: MakeRoots) -> None:
    files: dict[str, str] = {}
    for name in ("sda", "sdb", "sdc", "sdd"):
        files |= disk(name, device__model="A\n")
    files |= disk("dm-0", dm__uuid="mpath-3600a\n") | disk("dm-1", dm__uuid="LVM-abc\n")
    roots = make_roots(files)
    for name, holder in (("sda", "dm-0"), ("sdb", "dm-0"), ("sdc", "dm-1"), ("sdd", "dm-1")):
        (roots.sysfs / "block" / name / "holders" / holder).mkdir(parents=True)
    assert names(roots) == ["sda", "sdc", "sdd"]


def test_an_old_sysfs_has_disks_and_partitions_in_its_class(make_roots: MakeRoots) -> None:
    files = {
        "sys/class/block/sda/size": "2048\n",
        "sys/class/block/sda1/size": "1024\n",
        "sys/class/block/sda1/partition": "1\n",
    }
    assert names(make_roots(files)) == ["sda"]


def test_a_disk_has_the_cell_of_its_nearest_parent_device(make_roots: MakeRoots) -> None:
    place = "devices/pci0000:80/0000:81:00.0"
    files = {
        f"sys/{place}/host0/block/sda/size": "2048\n",
        f"sys/{place}/numa_node": "1\n",
        "sys/devices/pci0000:80/numa_node": "0\n",
        "sys/devices/virtual/block/vda/size": "2048\n",
    }
    links = {
        f"{BLOCK}/sda": f"../{place}/host0/block/sda",
        f"{BLOCK}/vda": "../devices/virtual/block/vda",
    }
    assert [(d.name, d.numa_node) for d in read_disks(make_roots(files, links)).value] == [
        ("sda", 1),
        ("vda", None),
    ]


def test_a_disk_whose_cell_is_unknown_has_none(make_roots: MakeRoots) -> None:
    (only,) = read_disks(make_roots(disk("sda", device__numa_node="-1\n"))).value
    assert only.numa_node is None


def test_a_scsi_serial_number_is_in_its_page(make_roots: MakeRoots) -> None:
    roots = make_roots(disk("sda") | {f"{BLOCK}/sda/device/vpd_pg80": b"\0\x80\0\x06WD-123"})
    assert read_disks(roots).value[0].serial == "WD-123"


def test_the_other_disks_are_read_when_one_vanishes(make_roots: MakeRoots) -> None:
    roots = make_roots(disk("sdb"), {f"{BLOCK}/sda": "../devices/gone"})
    assert names(roots) == ["sdb"]


def test_a_disk_that_is_removed_while_it_is_read_is_no_problem(
    make_roots: MakeRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = make_roots(disk("sda") | disk("sdb"))

    def read_integer(path: Path) -> int:
        if path.parent.name == "sda":
            shutil.rmtree(path.parent)
        return roots_module.read_integer(path)

    monkeypatch.setattr(disk_module, "read_integer", read_integer)
    found = read_disks(roots)
    assert ([one.name for one in found.value], found.problems) == (["sdb"], ())


@pytest.mark.parametrize("size", ["", "large", "-8"], ids=["blank", "garbage", "negative"])
def test_a_disk_of_unknown_size_is_left_out(size: str, make_roots: MakeRoots) -> None:
    roots = make_roots(disk("sda", size) | disk("sdb"))
    found = read_disks(roots)
    assert [one.name for one in found.value] == ["sdb"]
    assert [problem.path for problem in found.problems] == [str(roots.sysfs / "block/sda/size")]


def test_a_disk_is_listed_without_an_unusable_cell(make_roots: MakeRoots) -> None:
    found = read_disks(make_roots(disk("sda", device__numa_node="x\n")))
    assert [(one.name, one.numa_node) for one in found.value] == [("sda", None)]
    assert [problem.path[-9:] for problem in found.problems] == ["numa_node"]


def test_a_filesystem_is_measured_without_a_usable_mountinfo(
    tmp_path: Path, make_roots: MakeRoots
) -> None:
    storage = read_storage(tmp_path, make_roots({"proc/self/mountinfo": "garbage\n"}))
    assert storage.instances.total_mb > 0
    assert storage.instances.device == ""
    assert [problem.path[-9:] for problem in storage.problems] == ["mountinfo"]


@given(st.binary(max_size=40))
def test_any_page_gives_a_printable_serial_number(data: bytes) -> None:
    assert parse_vpd_serial(data).isprintable()


MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 8:1 / /var/lib/my\040guests rw master:2 propagate_from:1 - xfs /dev/sda1 rw
31 27 8:17 / /var/lib rw - btrfs /dev/sdb1 rw
32 27 0:44 /a /var/lib rw - zfs tank/a rw
33 27 0:45 / /srv/\303\244\134b rw - nfs4 server:/x rw
"""


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("/", "/dev/vda"),
        ("/home/x", "/dev/vda"),
        ("/var/lib/my guests/a", "/dev/sda1"),
        ("/var/lib/my guestsx", "tank/a"),
        ("/var/libx", "/dev/vda"),
        ("/var/lib", "tank/a"),
        ("/srv/\N{LATIN SMALL LETTER A WITH DIAERESIS}\\b/c", "server:/x"),
    ],
    ids=["root", "below-root", "blank", "not-a-prefix", "similar", "covered", "bytes"],
)
def test_the_longest_mount_point_above_a_path_wins(path: str, device: str) -> None:
    mount = find_mount(parse_mountinfo(MOUNTINFO), path)
    assert mount is not None
    assert mount.device == device


def test_optional_fields_vary_in_number() -> None:
    assert [mount.fs_type for mount in parse_mountinfo(MOUNTINFO)] == [
        "proc",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "nfs4",
    ]


@pytest.mark.parametrize(
    "line", ["garbage", "22 27 0:21 / /proc rw", "22 27 0:21 / /proc rw - proc", "\x0b"]
)
def test_a_line_with_missing_fields_is_an_error(line: str) -> None:
    with pytest.raises(HostDataError) as raised:
        parse_mountinfo(f"{line}\n", "mountinfo")
    assert raised.value.source == "mountinfo"


@given(st.text() | st.lists(st.sampled_from([*MOUNTINFO.split(" "), "-", "\n"])).map(" ".join))
def test_any_mountinfo_is_read_or_refused(text: str) -> None:
    try:
        mounts = parse_mountinfo(text)
    except HostDataError:
        return
    assert all(isinstance(mount, Mount) for mount in mounts)


def test_a_filesystem_is_measured_as_the_kernel_reports_it(tmp_path: Path) -> None:
    size = os.statvfs(tmp_path)
    found = read_filesystem(tmp_path, Roots()).value
    assert found.path == str(tmp_path)
    assert found.total_mb == size.f_blocks * size.f_frsize // 2**20
    assert abs(found.used_mb - (size.f_blocks - size.f_bfree) * size.f_frsize / 2**20) < 1024
    assert abs(found.available_mb - size.f_bavail * size.f_frsize / 2**20) < 1024
    assert found.device_id == tmp_path.stat().st_dev
    assert found.fs_type != ""
    assert found.device != ""


def test_the_nearest_existing_parent_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for absent in ("a/b/c", "file", "file/below"):
        assert read_filesystem(tmp_path / absent, Roots()).value.path == str(tmp_path)


def test_a_link_is_followed_to_where_it_is_mounted(tmp_path: Path, make_roots: MakeRoots) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "instances").symlink_to(tmp_path / "data")
    text = f"27 1 8:0 / {tmp_path}/data rw - xfs /dev/sdz1 rw\n"
    roots = make_roots({"proc/self/mountinfo": text})
    found = read_filesystem(tmp_path / "instances" / "x", roots).value
    assert (found.path, found.device, found.fs_type) == (f"{tmp_path}/data", "/dev/sdz1", "xfs")


def test_a_filesystem_that_nobody_can_write_to_offers_no_space(
    tmp_path: Path, make_roots: MakeRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = read_storage(tmp_path, Roots())
    assert (measured.instances.unusable_mb, measured.reserved_mb) == (0, 0)
    line = f"27 1 8:0 / {tmp_path} rw - ext4 /dev/sdz1"
    roots = make_roots({"proc/self/mountinfo": f"{line} ro,errors=remount-ro\n"})
    read_only = read_storage(tmp_path, roots)
    assert read_only.instances.available_mb == 0
    assert abs(read_only.reserved_mb - measured.instances.available_mb) < 1024
    assert "is on a filesystem that is read-only" in read_only.problems[0].text
    # A mount point of the agent alone may be read-only, as under ProtectSystem.
    bound = {"proc/self/mountinfo": f"{line} rw\n".replace(" rw - ", " ro - ")}
    assert read_storage(tmp_path, make_roots(bound)).reserved_mb == 0
    full = list(os.statvfs(tmp_path))
    full[7] = 0  # f_favail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(full))
    without_inodes = read_storage(tmp_path, make_roots())
    assert without_inodes.available_mb == 0
    assert without_inodes.reserved_mb > 0
    assert "without free inodes" in without_inodes.problems[0].text


def test_an_unknown_mount_leaves_device_and_type_blank(
    tmp_path: Path, make_roots: MakeRoots
) -> None:
    found = read_filesystem(tmp_path, make_roots()).value
    assert (found.device, found.fs_type) == ("", "")


def test_a_filesystem_of_size_zero_is_an_error() -> None:
    with pytest.raises(HostDataError, match="/proc: is on a filesystem of size zero"):
        read_filesystem(Path("/proc"), Roots())


def test_an_invalid_path_is_an_error() -> None:
    with pytest.raises(HostDataError, match="is not a path"):
        read_filesystem(Path("/a\0b"), Roots())


def test_a_name_that_is_not_utf8_can_be_stored(tmp_path: Path, make_roots: MakeRoots) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    odd.mkdir()
    text = b"27 1 8:0 / " + os.fsencode(odd) + b" rw - xfs /dev/sd\xff rw\n"
    found = read_filesystem(odd, make_roots({"proc/self/mountinfo": text})).value
    assert found.device == "/dev/sd\N{REPLACEMENT CHARACTER}"
    assert found.path.encode().endswith("\N{REPLACEMENT CHARACTER}".encode())


def test_storage_is_a_filesystem_and_the_disks(tmp_path: Path, make_roots: MakeRoots) -> None:
    storage = read_storage(tmp_path, make_roots(disk("sda")))
    assert storage.instances.total_mb > 0
    assert [found.name for found in storage.disks] == ["sda"]
