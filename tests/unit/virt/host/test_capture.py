"""Test that a capture contains what readers read, and reads the same as the machine."""

import ast
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host_tree import MakeRoots

from nodetracker.model.errors import HostDataError, NotFoundError, RefusedError
from nodetracker.virt.host import roots as host_roots
from nodetracker.virt.host.capture import (
    SUFFIXES,
    Capture,
    capture_machine,
    name_folder,
    write_archive,
)
from nodetracker.virt.host.disk import read_disks
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import CacheReader
from nodetracker.virt.machine import MachineProbes
from nodetracker.virt.probes import ProbeRunner
from tests.hosts.captures import CAPTURES, HERE, unpack

CPU = {"proc/cpuinfo": "processor\t: 0\n", "proc/meminfo": "MemTotal: 2048 kB\nMemFree: 1024 kB\n"}


def unpack_roots(archive: Path, folder: Path) -> Roots:
    unpack(archive, folder)
    root = folder / name_folder(archive)
    return Roots(root / "proc", root / "sys", root)


def capture(roots: Roots, folder: Path) -> Roots:
    """Return the roots of a machine's capture, written and unpacked below a folder."""
    folder.mkdir()
    archive = folder / "again.tar.xz"
    write_archive(capture_machine(roots), archive, is_forced=False, at=0)
    return unpack_roots(archive, folder)


def read_facts(roots: Roots) -> dict[str, Any]:
    """Return all facts that drivers read from a machine's files: name -> (value, error)."""
    found = MachineProbes("node-1", roots, ProbeRunner(30), CacheReader()).snapshot()
    read: dict[str, Any] = {"netdevs": found.netdevs, "mdev_types": found.mdev_types}
    for name in ("cpu", "memory", "numa", "pci", "gpus", "system"):
        fact = getattr(found, name)
        error = fact.error and fact.error.replace(str(roots.rootfs), "")
        read[name] = (fact.value, error)
    return read | {"disks": read_disks(roots).value}


def names_of(found: Capture) -> set[str]:
    return {"/".join(name) for name in found.files}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_captured_machine_is_captured_again_as_it_is_read(name: str, tmp_path: Path) -> None:
    original = unpack_roots(HERE / f"{name}.tar.xz", tmp_path)
    again = capture(original, tmp_path / "again")
    assert read_facts(again) == read_facts(original)


def read_lasting_facts(roots: Roots) -> dict[str, Any]:
    """Return the facts without free memory, which changes, and NVML's data, which is in no file."""
    facts = read_facts(roots)
    memory, error = facts["memory"]
    facts["memory"] = replace(memory, available_mb=0, swap_free_mb=0), error
    del facts["gpus"]
    return facts


def read_both(own: Roots, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts of this machine and those of its capture.

    They are read again when a virtual machine's memory grew meanwhile.
    """
    for attempt in range(3):
        machine = read_lasting_facts(own)
        again = capture(Roots(), folder / f"again-{attempt}")
        captured = read_lasting_facts(replace(again, is_captured=own.is_captured))
        if read_lasting_facts(own) == machine:
            break
    return machine, captured


def test_this_machine_s_capture_is_read_as_this_machine_is(tmp_path: Path) -> None:
    machine, captured = read_both(Roots(), tmp_path)
    assert captured == machine


def test_another_machine_needs_no_more_files_than_are_captured(tmp_path: Path) -> None:
    machine, captured = read_both(replace(Roots(), is_captured=True), tmp_path)
    for name in ("cpu", "numa", "system"):
        assert captured[name] == machine[name]


def test_a_file_that_no_reader_reads_is_not_captured(make_roots: MakeRoots) -> None:
    device = "sys/devices/pci0000:00/0000:00:01.0"
    roots = make_roots(
        CPU
        | {
            "etc/shadow": "secret",
            "etc/os-release": "NAME=x\n",
            "proc/1/environ": "TOKEN=secret",
            f"{device}/vendor": "0x8086\n",
            f"{device}/device": "0x10fb\n",
            f"{device}/config": "secret",
        },
        {"sys/bus/pci/devices/0000:00:01.0": "../../../devices/pci0000:00/0000:00:01.0"},
    )
    assert names_of(capture_machine(roots)) == {
        "proc/cpuinfo",
        "proc/meminfo",
        "etc/os-release",
        f"{device}/vendor",
        f"{device}/device",
    }


def test_links_in_a_capture_still_identify_functions_drivers_and_cells(
    make_roots: MakeRoots, tmp_path: Path
) -> None:
    parent, child = "sys/devices/pci0000:00/0000:00:01.0", "sys/devices/pci0000:00/0000:00:01.1"
    ids = {"vendor": "0x8086\n", "device": "0x10fb\n", "class": "0x020000\n", "numa_node": "1\n"}
    roots = make_roots(
        CPU
        | {f"{device}/{name}": text for device in (parent, child) for name, text in ids.items()}
        | {
            f"{child}/ata1/block/sda/size": "2097152\n",
            f"{child}/ata1/block/sda/partition": "",
            f"{child}/ata1/block/sdb/size": "2097152\n",
            f"{parent}/net/eth0/address": "02:00\n",
        },
        {
            f"{parent}/virtfn0": "../0000:00:01.1",
            f"{child}/physfn": "../0000:00:01.0",
            f"{child}/driver": "../../../bus/pci/drivers/gone",
            f"{child}/iommu_group": "/outside/of/sysfs/7",
            f"{parent}/net/eth0/device": "../../../0000:00:01.0",
            "sys/class/net/eth0": "../../devices/pci0000:00/0000:00:01.0/net/eth0",
            "sys/bus/pci/devices/0000:00:01.0": "../../../devices/pci0000:00/0000:00:01.0",
            "sys/bus/pci/devices/0000:00:01.1": "../../../devices/pci0000:00/0000:00:01.1",
            "sys/block/sda": "../devices/pci0000:00/0000:00:01.1/ata1/block/sda",
            "sys/block/sdb": "../devices/pci0000:00/0000:00:01.1/ata1/block/sdb",
        },
    )
    facts = read_facts(roots)
    (pf, vf), _ = facts["pci"]
    assert (pf.vf_count, vf.parent_addr, vf.driver, vf.iommu_group) == (
        1, "0000:00:01.0", "gone", 7,
    )  # fmt: skip
    assert facts["netdevs"] == {"eth0": "0000:00:01.0"}
    assert [(disk.name, disk.numa_node) for disk in facts["disks"]] == [("sdb", 1)]
    assert read_facts(capture(roots, tmp_path / "again")) == facts


def test_roots_that_are_links_themselves_are_captured(
    make_roots: MakeRoots, tmp_path: Path
) -> None:
    roots = make_roots(
        CPU
        | {
            "sys/devices/x/numa_node": "1\n",
            "sys/devices/x/block/sda/size": "2097152\n",
        },
        {"sys/block/sda": "../devices/x/block/sda", "named": "sys"},
    )
    again = capture(replace(roots, sysfs=roots.rootfs / "named"), tmp_path / "again")
    assert [(disk.name, disk.numa_node) for disk in read_disks(again).value] == [("sda", 1)]


def test_an_unreadable_path_is_reported_and_the_rest_is_captured(make_roots: MakeRoots) -> None:
    roots = make_roots({"proc/meminfo/is": "a folder", "proc/cpuinfo": CPU["proc/cpuinfo"]})
    found = capture_machine(roots)
    assert found.unreadable == {str(roots.procfs / "meminfo"): os.strerror(21)}
    assert names_of(found) == {"proc/cpuinfo"}


def test_roots_without_a_machine_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no machine found"):
        capture_machine(Roots(tmp_path / "proc", tmp_path / "sys", tmp_path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_suffix_selects_the_archive_s_format(
    suffix: str, make_roots: MakeRoots, tmp_path: Path
) -> None:
    roots = make_roots(CPU)
    path = tmp_path / f"host{suffix}"
    size = write_archive(capture_machine(roots), path, is_forced=False, at=0)
    assert size == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    magic = {"w:gz": b"\x1f\x8b", "w:bz2": b"BZh", "w:xz": b"\xfd7zXZ", "w:": b"host/"}
    assert path.read_bytes().startswith(magic[SUFFIXES[suffix]])
    (tmp_path / "out").mkdir()
    assert read_memory_info(unpack_roots(path, tmp_path / "out")) == read_memory_info(roots)


@pytest.mark.parametrize("name", ["host.zip", "host", ".tar", "...tar.gz", "host.tar.zst"])
def test_an_invalid_archive_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="suffix"):
        write_archive(Capture({("etc", "x"): b""}), tmp_path / name, is_forced=True, at=0)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "host.tar"
    path.write_text("mine")
    found = Capture({("etc", "x"): b""})
    with pytest.raises(RefusedError, match="already exists; use --force to replace it"):
        write_archive(found, path, is_forced=False, at=0)
    assert path.read_text() == "mine"
    write_archive(found, path, is_forced=True, at=0)
    assert tarfile.is_tarfile(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["host.tar", "absent/host.tar", "file/host.tar"])
def test_an_archive_that_cannot_be_written_leaves_no_file(place: str, tmp_path: Path) -> None:
    (tmp_path / "host.tar").mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(HostDataError, match=r"host\.tar: "):
        write_archive(Capture({("etc", "x"): b""}), tmp_path / place, is_forced=True, at=0)
    assert sorted(tmp_path.iterdir()) == before


def test_readers_access_files_only_through_roots() -> None:
    """A file that a reader opened by itself would be missing from captures."""
    accesses = {"open", "read_bytes", "readlink", "iterdir", "glob", "listdir", "scandir", "exists"}
    folder = Path(host_roots.__file__).parent
    found = {
        f"{path.name}: {node.func.attr}"
        for path in folder.glob("*.py")
        if path.name not in {"roots.py", "capture.py", "archive.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in accesses
    }
    assert found == set()
