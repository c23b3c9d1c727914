"""Read the host's block devices and the filesystem that holds guests' disks."""

import re
from functools import partial
from pathlib import Path

from nodetracker.host.filesystem import read_filesystem
from nodetracker.host.problems import Partial, Problems
from nodetracker.host.roots import (
    Roots,
    clean_label,
    list_directory,
    parse_integer,
    path_exists,
    read_label,
    read_label_bytes,
    read_optional_text,
    read_text,
)
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Disk, StorageInfo
from nodetracker.model.units import capacity_mib_from_bytes

_SECTOR_BYTES = 512
"""The unit of ``size``, independent of the device's sector size."""

_NOT_A_DISK = re.compile(
    r"(?:loop|ram|zram|dm-|md|sr|fd|bcache|zd)[0-9].*"  # memory, removable, or made of disks
    r"|mmcblk[0-9]+(?:boot[0-9]+|rpmb)"
)
_PAGE_80_HEADER_BYTES = 4


def parse_vpd_serial(data: bytes) -> str:
    r"""Return the serial number in a SCSI unit serial number page, "" for any other page.

    Source: SPC-4, 7.8.15: page code 80h, length in bytes 2 and 3, ASCII.

    >>> parse_vpd_serial(b"\x00\x80\x00\x04 S1Z")
    'S1Z'
    """
    if len(data) < _PAGE_80_HEADER_BYTES or data[1] != 0x80:
        return ""
    length = int.from_bytes(data[2:4], "big")
    return clean_label(data[_PAGE_80_HEADER_BYTES : _PAGE_80_HEADER_BYTES + length])


def read_disks(roots: Roots) -> Partial[tuple[Disk, ...]]:
    """Return the whole disks, sorted by name.

    Excluded are partitions, devices backed by memory (loop, ram, zram) or by
    other disks (device mapper, md, bcache, ZFS volumes), drives for removable
    media, hidden paths of multipath disks, and devices of size zero. A disk
    whose size cannot be read is left out with a problem.

    Source: Linux Documentation/ABI/stable/sysfs-block.
    """
    problems = Problems(roots.sysfs / "block")
    disks = []
    for directory in _list_devices(roots, problems):
        read = partial(_read_disk, directory, problems)
        disk = problems.attempt(read, None, "the disk is left out")
        if disk is not None:
            disks.append(disk)
    return Partial(tuple(disks), problems.list_all())


def read_storage(path: Path, roots: Roots) -> StorageInfo:
    """Return the filesystem for guests' disks and the block devices of the host.

    Raises:
        HostDataError: see `read_filesystem`.
    """
    filesystem, disks = read_filesystem(path, roots), read_disks(roots)
    problems = (*filesystem.problems, *disks.problems)
    return StorageInfo(filesystem.value, disks.value, problems=problems)


def _list_devices(roots: Roots, problems: Problems) -> list[Path]:
    cost = "no disk is listed"
    for base in (roots.sysfs / "block", roots.sysfs / "class/block"):
        names = problems.attempt(partial(list_directory, base), None, cost)
        if names is not None:
            return [base / name for name in names if not _NOT_A_DISK.fullmatch(name)]
    return []


def _read_disk(directory: Path, problems: Problems) -> Disk | None:
    """Return one disk, None for a device that is excluded or has been removed."""
    if not path_exists(directory):
        list_directory(directory)  # raises unless the device has been removed
        return None
    if path_exists(directory / "partition"):
        return None
    if read_label(directory / "hidden") == "1":
        return None
    path = directory / "size"
    try:
        sectors = parse_integer(read_text(path), str(path))
    except HostDataError:
        if not path_exists(directory):
            return None
        raise
    if sectors < 0:
        raise HostDataError(str(path), "is negative")
    if sectors == 0:
        return None
    return Disk(
        name=directory.name.replace("!", "/"),
        size_mb=capacity_mib_from_bytes(sectors * _SECTOR_BYTES),
        model=read_label(directory / "device/model"),
        serial=_read_serial(directory),
        is_rotational=read_label(directory / "queue/rotational") == "1",
        numa_node=_read_numa_node(directory, problems),
    )


def _read_serial(directory: Path) -> str:
    """Return the first serial number found: virtio's, NVMe's or SCSI's."""
    serial = read_label(directory / "serial") or read_label(directory / "device/serial")
    if serial:
        return serial
    return parse_vpd_serial(read_label_bytes(directory / "device/vpd_pg80"))


def _read_numa_node(directory: Path, problems: Problems) -> int | None:
    """Return the NUMA cell of the disk's nearest parent device that has one."""
    try:
        device = directory.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    for place in (device / "device", *device.parents):
        if place.name == "devices":
            break
        read = partial(_read_optional_integer, place / "numa_node")
        unknown: int | None = -1
        node = problems.attempt(read, unknown, "the disk's NUMA cell is unknown")
        if node is not None:
            return node if node >= 0 else None
    return None


def _read_optional_integer(path: Path) -> int | None:
    text = read_optional_text(path)
    return None if text is None else parse_integer(text, str(path))
