"""Read the size, device and type of the filesystem that holds guests' disks."""

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from nodetracker.host.problems import Partial, Problems
from nodetracker.host.roots import Roots, describe_os_error, read_optional_text
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Filesystem
from nodetracker.model.units import capacity_mib_from_bytes, usage_mib_from_bytes

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_FIELDS_BEFORE = 6
_FIELDS_AFTER = 3


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


def parse_mountinfo(text: str, source: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    r"""Parse the text of ``mountinfo``, keeping its order: later mounts hide earlier ones.

    The kernel escapes blanks, newlines and backslashes as three octal digits;
    they are decoded.

    Raises:
        HostDataError: a line lacks fields.

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


def read_filesystem(path: Path, roots: Roots) -> Partial[Filesystem]:
    """Measure the filesystem of a directory or of its nearest existing parent.

    The amounts are measured, not claimed by guests. Total and available are
    rounded down, used is rounded up. Available excludes the blocks reserved
    for root, so used and available need not add up to the total. Device and
    type are "" with a problem when ``mountinfo`` cannot be used.

    Raises:
        HostDataError: the filesystem cannot be measured; the fact is held.

    Source: statvfs(3); ``proc/self/mountinfo`` for device and type.
    """
    measured = _find_existing(path)
    try:
        device_id = measured.stat().st_dev
        size = os.statvfs(measured)
    except OSError as error:
        raise HostDataError(str(measured), describe_os_error(error)) from error
    if size.f_blocks == 0:
        raise HostDataError(str(measured), "is on a filesystem of size zero")
    problems = Problems(measured)
    cost = "device and type of the filesystem are unknown"
    mount = problems.attempt(partial(_read_mount, measured, roots), None, cost)
    filesystem = Filesystem(
        path=_as_utf8(str(measured)),
        total_mb=capacity_mib_from_bytes(size.f_blocks * size.f_frsize),
        used_mb=usage_mib_from_bytes((size.f_blocks - size.f_bfree) * size.f_frsize),
        available_mb=capacity_mib_from_bytes(size.f_bavail * size.f_frsize),
        device=_as_utf8(mount.device) if mount else "",
        fs_type=_as_utf8(mount.fs_type) if mount else "",
        device_id=device_id,
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
