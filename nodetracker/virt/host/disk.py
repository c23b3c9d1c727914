"""Read the host's block devices and the filesystem that holds guests' disks."""

import os
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Disk, Filesystem, StorageInfo
from nodetracker.model.units import capacity_mib_from_bytes, usage_mib_from_bytes
from nodetracker.virt.host.roots import (
    Partial,
    Problems,
    Roots,
    clean_label,
    describe_os_error,
    list_directory,
    path_exists,
    read_integer,
    read_label,
    read_label_bytes,
    read_link_name,
    read_optional_integer,
    read_optional_text,
)

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_FIELDS_BEFORE = 6
_FIELDS_AFTER = 3
_SECTOR_BYTES = 512
"""The unit of ``size``, independent of the device's sector size."""

_NO_DRIVE = re.compile(r"(?:sr|fd)[0-9].*|mmcblk[0-9]+(?:boot[0-9]+|rpmb)")
"""Devices with hardware of their own that are not disks: removable media, parts of a card."""

_WITHOUT_HARDWARE = re.compile(r"(?:loop|ram|zram|dm-|md|bcache|zd|drbd|rbd|nbd)[0-9].*")
"""Devices of memory, of other disks or of other machines, where only names say so."""

_ZFS = "zfs"
_POOLED = frozenset({"btrfs", "bcachefs", _ZFS})
"""Filesystems whose subvolumes or datasets have device ids of their own and share one space."""

_REMOTE_BUSES = frozenset({"rbd", "nbd"})
_MULTIPATH = "mpath-"
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
        read = partial(read_optional_integer, place / "numa_node")
        unknown: int | None = -1
        node = problems.attempt(read, unknown, "the disk's NUMA cell is unknown")
        if node is not None:
            return node if node >= 0 else None
    return None


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: one line of ``mountinfo``.

    Attributes:
        options: options of the filesystem, not of this mount, e.g. ``prjquota``.
    """

    mount_point: str
    device: str
    fs_type: str
    options: tuple[str, ...] = ()


def read_storage(path: Path, roots: Roots, further_path: Path | None = None) -> StorageInfo:
    """Return the filesystem for guests' disks and the block devices of the host.

    Args:
        path: with a further one it must exist, as its parent may be on another filesystem.
        further_path: another directory of guests' files; it counts if it is on another filesystem.
    """
    if further_path is not None and _find_existing(path) != Path(os.path.realpath(path)):
        raise HostDataError(str(path), "does not exist")
    filesystem, disks = read_filesystem(path, roots), read_disks(roots)
    further = None if further_path is None else read_filesystem(further_path, roots)
    problems = (*filesystem.problems, *disks.problems, *(further.problems if further else ()))
    instances = filesystem.value
    info = StorageInfo(instances, disks.value, reserved_mb=instances.unusable_mb, problems=problems)
    if further is None or further.value.device_id == instances.device_id:
        return info
    return replace(info, further=further.value)


def is_on(path: Path, filesystem: Filesystem, roots: Roots) -> bool:
    """Return whether an existing path is on a filesystem, or on one that shares its space.

    Raises:
        OSError: the path cannot be read.
        HostDataError: ``mountinfo`` is needed and cannot be read.
    """
    device_id = path.stat().st_dev
    if device_id == filesystem.device_id or filesystem.fs_type not in _POOLED:
        return device_id == filesystem.device_id
    mount = read_mount(path.parent, roots)
    return mount is not None and _name_pool(mount) == _name_pool(filesystem)


def _name_pool(of: Mount | Filesystem) -> tuple[str, str]:
    return of.fs_type, of.device.partition("/")[0] if of.fs_type == _ZFS else of.device


def read_filesystem(path: Path, roots: Roots) -> Partial[Filesystem]:
    """Measure the filesystem of a directory or of its nearest existing parent.

    The amounts are measured, not claimed by guests. Total and available are
    rounded down, used is rounded up. Available excludes the blocks reserved
    for root, so used and available need not add up to the total. Nothing is available, with
    a problem, while nothing can be written. Device and type are "" with a problem when
    ``mountinfo`` cannot be used.

    Raises:
        HostDataError: the filesystem cannot be measured; the fact is held.

    Source: psutil's ``disk_usage`` (statvfs); ``proc/self/mountinfo`` for device and type.
    """
    import psutil  # its import is not cheap, and every driver's plugin imports this module

    measured = _find_existing(path)
    try:
        device_id = measured.stat().st_dev
        usage = psutil.disk_usage(str(measured))
        inodes = os.statvfs(measured)
    except OSError as error:
        raise HostDataError(str(measured), describe_os_error(error)) from error
    if usage.total == 0:
        raise HostDataError(str(measured), "is on a filesystem of size zero")
    problems = Problems(measured)
    cost = "device and type of the filesystem are unknown"
    mount = problems.attempt(partial(_read_mount, measured, roots), None, cost)
    free_mb = capacity_mib_from_bytes(usage.free)
    unusable = ""
    if mount is not None and "ro" in mount.options:
        unusable = "is on a filesystem that is read-only"
    elif inodes.f_files > 0 == inodes.f_favail:
        unusable = "is on a filesystem without free inodes"
    if unusable:
        problems.add(str(measured), unusable, "its free space is not offered")
    filesystem = Filesystem(
        path=_as_utf8(str(measured)),
        total_mb=capacity_mib_from_bytes(usage.total),
        used_mb=usage_mib_from_bytes(usage.used),
        available_mb=0 if unusable else free_mb,
        device=_as_utf8(mount.device) if mount else "",
        fs_type=_as_utf8(mount.fs_type) if mount else "",
        device_id=device_id,
        unusable_mb=free_mb if unusable else 0,
    )
    return Partial(filesystem, problems.list_all())


def read_mount(path: Path, roots: Roots) -> Mount | None:
    """Return the mount that contains a directory or its nearest existing parent, if any.

    Raises:
        HostDataError: the path cannot be resolved, or ``mountinfo`` cannot be read.
    """
    return _read_mount(_find_existing(path), roots)


def _read_mount(measured: Path, roots: Roots) -> Mount | None:
    mountinfo = roots.procfs / "self/mountinfo"
    text = read_optional_text(mountinfo, errors="surrogateescape")
    return find_mount(parse_mountinfo(text or "", str(mountinfo)), str(measured))


def _find_existing(path: Path) -> Path:
    try:
        resolved = Path(os.path.realpath(path))
        return next((place for place in (resolved, *resolved.parents) if place.is_dir()), resolved)
    except (OSError, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else "is not a path"
        raise HostDataError(str(path), reason) from error


def parse_mountinfo(text: str, source: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    r"""Parse the text of ``mountinfo``, keeping its order: later mounts hide earlier ones.

    The kernel escapes blanks, newlines and backslashes as three octal digits;
    they are decoded.

    Source: Linux Documentation/filesystems/proc.rst, 3.5.

    >>> line = r"36 35 98:0 / /mnt/a\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
    >>> parse_mountinfo(line)[0].mount_point, parse_mountinfo(line)[0].options
    ('/mnt/a b', ('rw', 'errors=continue'))
    """
    mounts = []
    for line in text.split("\n"):
        if not line:
            continue
        fields = line.split(" ")
        # The number of optional fields before the dash varies; none of the
        # fixed fields before those is a single dash.
        dash = fields.index("-", _FIELDS_BEFORE) if "-" in fields[_FIELDS_BEFORE:] else len(fields)
        after = fields[dash + 1 :]
        if len(after) < _FIELDS_AFTER:
            raise HostDataError(source, "has a line with missing fields")
        fs_type, device = _decode_octal(after[0]), _decode_octal(after[1])
        options = tuple(after[2].split(","))
        mounts.append(Mount(_decode_octal(fields[4]), device, fs_type, options))
    return tuple(mounts)


def find_mount(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Return the mount that contains an absolute path without symbolic links.

    The longest mount point that is the path or one of its parents wins. Of
    several mounts on the same point the last one wins, as it hides the others.
    """
    above = {path, *(str(parent) for parent in PurePosixPath(path).parents)}
    best: Mount | None = None
    for mount in mounts:
        if mount.mount_point in above and (
            best is None or len(mount.mount_point) >= len(best.mount_point)
        ):
            best = mount
    return best


def _decode_octal(text: str) -> str:
    if "\\" not in text:
        return text
    # An escape is one byte; a character may consist of several.
    raw = text.encode(errors="surrogateescape")
    raw = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), raw)
    return raw.decode(errors="surrogateescape")


def _as_utf8(text: str) -> str:
    """Replace the bytes of a name that are not UTF-8, which databases reject."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def read_disks(roots: Roots) -> Partial[tuple[Disk, ...]]:
    """Return the whole disks, sorted by name.

    A disk has hardware of its own, which sysfs links as ``device``. Only where no device
    has this link, as in some captured trees, do names decide. Excluded are partitions,
    devices backed by memory, other disks or other machines (loop, device mapper, md, DRBD,
    rbd, nbd), drives for removable media, hidden paths of NVMe disks, and devices of size
    zero. A disk with several paths under device mapper's multipath is listed by the first.
    A disk whose size cannot be read is left out with a problem.

    Source: Linux Documentation/ABI/stable/sysfs-block; multipath-tools for the uuid.
    """
    problems = Problems(roots.sysfs / "block")
    disks = []
    multipaths: set[str] = set()
    for directory in _list_devices(roots, problems):
        read = partial(_read_disk, directory, problems)
        disk = problems.attempt(read, None, "the disk is left out")
        if disk is None:
            continue
        multipath = _find_multipath(directory, problems)
        if multipath is None or multipath not in multipaths:
            disks.append(disk)
        if multipath is not None:
            multipaths.add(multipath)
    return Partial(tuple(disks), problems.list_all())


def _list_devices(roots: Roots, problems: Problems) -> list[Path]:
    """Return the directories of devices that may be disks."""
    cost = "no disk is listed"
    for base in (roots.sysfs / "block", roots.sysfs / "class/block"):
        names = problems.attempt(partial(list_directory, base), None, cost)
        if names is not None:
            found = [base / name for name in names if not _NO_DRIVE.fullmatch(name)]
            with_hardware = [place for place in found if _has_hardware(place, problems)]
            if with_hardware:
                return [place for place in with_hardware if _is_local(place, problems)]
            return [place for place in found if not _WITHOUT_HARDWARE.fullmatch(place.name)]
    return []


def _has_hardware(directory: Path, problems: Problems) -> bool:
    """Return whether a device has the link ``device``, also if that cannot be followed."""
    listing = partial(list_directory, directory)
    return "device" in (problems.attempt(listing, None, "the disk is left out") or ())


def _is_local(directory: Path, problems: Problems) -> bool:
    link = partial(read_link_name, directory / "device/subsystem")
    return problems.attempt(link, None, "the disk counts as a local one") not in _REMOTE_BUSES


def _find_multipath(directory: Path, problems: Problems) -> str | None:
    """Return the multipath device that has a disk as one of its paths, None without one."""
    cost = "a disk with several paths may be listed more than once"
    listing = partial(list_directory, directory / "holders")
    for name in problems.attempt(listing, None, cost) or ():
        read = partial(read_optional_text, directory.parent / name / "dm/uuid")
        uuid = problems.attempt(read, None, cost) or ""
        if uuid.startswith(_MULTIPATH):
            return uuid.strip()
    return None


def _read_disk(directory: Path, problems: Problems) -> Disk | None:
    """Return one disk, None for a device that is excluded or has been removed."""
    if not path_exists(directory):
        list_directory(directory)  # raises unless the device has been removed
        return None
    if path_exists(directory / "partition") or read_label(directory / "hidden") == "1":
        return None
    path = directory / "size"
    try:
        sectors = read_integer(path)
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
