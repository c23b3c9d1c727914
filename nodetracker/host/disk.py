"""Read the host's block devices and the filesystem that holds guests' disks."""

import re
from pathlib import Path

from nodetracker.errors import HostDataError
from nodetracker.host.filesystem import read_filesystem
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
from nodetracker.model.host import Disk, StorageInfo
from nodetracker.units import capacity_mib_from_bytes

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


def read_disks(roots: Roots) -> tuple[Disk, ...]:
    """Return the whole disks, sorted by name.

    Excluded are partitions, devices backed by memory (loop, ram, zram) or by
    other disks (device mapper, md, bcache, ZFS volumes), drives for removable
    media, hidden paths of multipath disks, and devices of size zero.

    Raises:
        HostDataError: a disk exists and its size is unreadable or malformed;
            the fact is held.

    Source: Linux Documentation/ABI/stable/sysfs-block.
    """
    base = roots.sysfs / "block"
    names = list_directory(base)
    if names is None:
        base = roots.sysfs / "class/block"
        names = list_directory(base) or ()
    disks = (_read_disk(base / name) for name in names if not _NOT_A_DISK.fullmatch(name))
    return tuple(disk for disk in disks if disk is not None)


def read_storage(path: Path, roots: Roots) -> StorageInfo:
    """Return the filesystem for guests' disks and the block devices of the host.

    Raises:
        HostDataError: see `read_filesystem` and `read_disks`.
    """
    return StorageInfo(instances=read_filesystem(path, roots), disks=read_disks(roots))


def _read_disk(directory: Path) -> Disk | None:
    """Return one disk, None for a device that is excluded or has been removed."""
    if not path_exists(directory) or path_exists(directory / "partition"):
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
        numa_node=_read_numa_node(directory),
    )


def _read_serial(directory: Path) -> str:
    """Return the first serial number found: virtio's, NVMe's or SCSI's."""
    serial = read_label(directory / "serial") or read_label(directory / "device/serial")
    if serial:
        return serial
    return parse_vpd_serial(read_label_bytes(directory / "device/vpd_pg80"))


def _read_numa_node(directory: Path) -> int | None:
    """Return the NUMA cell of the disk's nearest parent device that has one."""
    try:
        device = directory.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    for place in (device / "device", *device.parents):
        if place.name == "devices":
            break
        path = place / "numa_node"
        text = read_optional_text(path)
        if text is not None:
            node = parse_integer(text, str(path))
            return node if node >= 0 else None
    return None
