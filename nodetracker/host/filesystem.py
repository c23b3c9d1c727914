"""The filesystem that holds guests' disks: how large it is, and what it is."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nodetracker.errors import HostDataError
from nodetracker.host.roots import Roots, describe_os_error, read_optional_text
from nodetracker.model.host import Filesystem
from nodetracker.units import capacity_mib_from_bytes, usage_mib_from_bytes

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_FIELDS_BEFORE = 6
_FIELDS_AFTER = 3


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``mountinfo``: where what is mounted.

    Attributes:
        options: of the filesystem, not of this mount of it, e.g. ``prjquota``.
    """

    mount_point: str
    device: str
    fs_type: str
    options: tuple[str, ...] = ()


def parse_mountinfo(text: str, source: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    r"""Read the text of ``mountinfo`` in its own order: later mounts cover earlier ones.

    The kernel writes blanks, newlines and backslashes as three octal digits;
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
        # The optional fields before the dash vary in number; the fields
        # before those never are a lone dash.
        dash = fields.index("-", _FIELDS_BEFORE) if "-" in fields[_FIELDS_BEFORE:] else len(fields)
        after = fields[dash + 1 :]
        if len(after) < _FIELDS_AFTER:
            raise HostDataError(source, "has a line without its fields")
        fs_type, device = _decode_octal(after[0]), _decode_octal(after[1])
        options = tuple(after[2].split(","))
        mounts.append(Mount(_decode_octal(fields[4]), device, fs_type, options))
    return tuple(mounts)


def find_mount(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Return the mount that holds an absolute path without symbolic links.

    The longest mount point that is the path or above it wins, and the last
    one of several on the same point, as it covers the others.
    """
    above = {path, *(str(parent) for parent in PurePosixPath(path).parents)}
    best: Mount | None = None
    for mount in mounts:
        if mount.mount_point in above and (
            best is None or len(mount.mount_point) >= len(best.mount_point)
        ):
            best = mount
    return best


def read_filesystem(path: Path, roots: Roots) -> Filesystem:
    """Measure the filesystem of a directory or of its nearest existing parent.

    Amounts are the filesystem's, not what guests were promised: total is
    rounded down, used up, and available leaves out the blocks that are
    reserved for root, so used and available need not make the total.

    Raises:
        HostDataError: nothing can be measured there; the fact is held.

    Source: statvfs(3); ``proc/self/mountinfo`` for device and type.
    """
    measured = _find_existing(path)
    try:
        device_id = measured.stat().st_dev
        size = os.statvfs(measured)
    except OSError as error:
        raise HostDataError(str(measured), describe_os_error(error)) from error
    if size.f_blocks == 0:
        raise HostDataError(str(measured), "is on a filesystem without a size")
    mount = _read_mount(measured, roots)
    return Filesystem(
        path=_as_utf8(str(measured)),
        total_mb=capacity_mib_from_bytes(size.f_blocks * size.f_frsize),
        used_mb=usage_mib_from_bytes((size.f_blocks - size.f_bfree) * size.f_frsize),
        available_mb=capacity_mib_from_bytes(size.f_bavail * size.f_frsize),
        device=_as_utf8(mount.device) if mount else "",
        fs_type=_as_utf8(mount.fs_type) if mount else "",
        device_id=device_id,
    )


def read_mount(path: Path, roots: Roots) -> Mount | None:
    """Return the mount that holds a directory or its nearest existing parent, None for none.

    Raises:
        HostDataError: the path cannot be followed, or ``mountinfo`` not be read.
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
    # The escapes stand for bytes, of which several may make one character.
    raw = text.encode(errors="surrogateescape")
    raw = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), raw)
    return raw.decode(errors="surrogateescape")


def _as_utf8(text: str) -> str:
    """Replace the bytes of a name that are not UTF-8, which no database would take."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
