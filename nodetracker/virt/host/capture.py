"""Capture the files that the readers of this package read, to be read on another machine.

A capture records the links and bytes that were actually read, so no second
list of paths has to be kept in step with the readers.
"""

import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from nodetracker.model.errors import HostDataError, NotFoundError, RefusedError
from nodetracker.virt.host.cpu import read_cpu_info
from nodetracker.virt.host.disk import read_disks, read_mount
from nodetracker.virt.host.gpu import read_gpus
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.numa import read_numa_topology
from nodetracker.virt.host.pci import read_mdev_types, read_netdevs, read_pci_devices
from nodetracker.virt.host.roots import Roots, describe_os_error, observe_reads
from nodetracker.virt.host.system import read_system_info

_MAX_LINKS = 40

T = TypeVar("T")
Report = Callable[[int, int, str], None]
"""Receives how many readers have run, how many there are, and what is read now."""

Name = tuple[str, ...]
"""Parts of a path in the capture: rootfs, with procfs and sysfs in ``proc`` and ``sys``."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Files, links and folders that readers read on one machine.

    Attributes:
        links: name -> relative target.
        folders: names of the listed folders, empty ones included.
        unreadable: path -> reason, for paths that exist and could not be read.
    """

    files: Mapping[Name, bytes] = field(default_factory=dict)
    links: Mapping[Name, str] = field(default_factory=dict)
    folders: frozenset[Name] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def capture_machine(roots: Roots, report: Report = lambda done, total, doing: None) -> Capture:
    """Run all readers on a machine and return the files that they read.

    The roots are read as those of a captured machine. Readers then use files
    where they would otherwise query this machine's kernel. Data that only a
    running machine provides (NVML, filesystem sizes) is not in the capture.
    """
    recorder = _Recorder(roots)
    foreign = replace(roots, is_captured=True)
    with observe_reads(recorder):
        for number, (name, read) in enumerate(_READERS.items()):
            report(number, len(_READERS), name)
            _try(partial(read, foreign))
    if not recorder.files:
        raise NotFoundError(
            f"no machine found below {roots.procfs}, {roots.sysfs} and {roots.rootfs}"
        )
    return Capture(recorder.files, recorder.links, frozenset(recorder.folders), recorder.unreadable)


def _read_numa(roots: Roots) -> object:
    return read_numa_topology(roots, _try(partial(read_cpu_info, roots)))


def _read_gpus(roots: Roots) -> object:
    pci = _try(partial(read_pci_devices, roots))
    return read_gpus(roots, pci.value if pci else ())


_READERS: Mapping[str, Callable[[Roots], object]] = {
    "CPUs": read_cpu_info,
    "memory": read_memory_info,
    "NUMA cells": _read_numa,
    "PCI functions": read_pci_devices,
    "network interfaces": read_netdevs,
    "mediated devices": read_mdev_types,
    "GPUs": _read_gpus,
    "disks": read_disks,
    "mounts": partial(read_mount, Path("/")),
    "system": read_system_info,
}
"""What is read, by name."""


class _Recorder:
    """Records what is read below the roots, as a tree with its symbolic links.

    Readers of ``/sys`` identify devices by their links, so links are recorded
    there. Elsewhere a file is stored under the requested name, because
    ``/proc/self`` and ``/etc/os-release`` are links whose targets differ
    between machines.
    """

    def __init__(self, roots: Roots) -> None:
        self._sysfs = roots.sysfs
        named = {("proc",): roots.procfs, ("sys",): roots.sysfs, (): roots.rootfs}
        self._places = [
            (base, name)
            for name, root in named.items()
            for base in (root, Path(os.path.realpath(root)))
        ]
        self.files: dict[Name, bytes] = {}
        self.links: dict[Name, str] = {}
        self.folders: set[Name] = set()
        self.unreadable: dict[str, str] = {}

    def on_read(self, path: Path, data: bytes) -> None:
        """Record a file's content, the first one if it is read twice."""
        name = self._name(path)
        if name is not None:
            self.files.setdefault(self._follow(name), data)

    def on_lookup(self, path: Path) -> None:
        """Record a link with its target, or the existence of a file or folder."""
        name = self._name(path)
        if name is None:
            return
        place = (*self._follow(name[:-1]), name[-1])
        if self._keep_link(place) is not None and not os.path.exists(path):  # noqa: PTH110
            return
        if os.path.isdir(path):  # noqa: PTH112 Path.is_dir() raises on EACCES
            self.folders.add(self._follow(name))
        elif os.path.isfile(path):  # noqa: PTH113
            self.files.setdefault(self._follow(name), b"")

    def on_list(self, path: Path, names: tuple[str, ...]) -> None:
        """Record the links and folders of a directory; its files are recorded when read."""
        name = self._name(path)
        if name is None:
            return
        place = self._follow(name)
        self.folders.add(place)
        for child in names:
            is_link = self._keep_link((*place, child)) is not None
            if not is_link and os.path.isdir(path / child):  # noqa: PTH112
                self.folders.add((*place, child))

    def on_failure(self, path: Path, reason: str) -> None:
        self.unreadable[str(path)] = reason

    def _name(self, path: Path) -> Name | None:
        """Return the name of a path below one of the roots, None for any other path."""
        for base, name in self._places:
            if path.is_relative_to(base):
                return (*name, *path.relative_to(base).parts)
        return None

    def _follow(self, name: Name) -> Name:
        """Return the real name of a name in sysfs, recording the links on the path."""
        place: Name = ()
        left = list(name)
        links = 0
        while left:
            place = (*place, left.pop(0))
            target = self._keep_link(place)
            if target is not None and links < _MAX_LINKS:
                place, left = (), [*target, *left]
                links += 1
        return place

    def _keep_link(self, name: Name) -> Name | None:
        """Record a link of sysfs; return its target's name, None when it is not a link."""
        if name[:1] != ("sys",) or len(name) == 1:
            return None
        try:
            target = PurePosixPath(self._sysfs.joinpath(*name[1:]).readlink())
        except OSError:
            return None
        place = _join(name[:-1], target)
        if place[:1] != ("sys",):  # outside sysfs: readers use only the target's last part
            target = PurePosixPath("outside", target.name)
            place = _join(name[:-1], target)
        self.links[name] = str(target)
        return place


def _join(folder: Name, target: PurePosixPath) -> Name:
    return PurePosixPath(os.path.normpath(PurePosixPath(*folder, target))).parts


def _try(read: Callable[[], T]) -> T | None:
    """Ignore a reader's failure: reading the capture fails in the same place."""
    try:
        return read()
    except HostDataError:
        return None


_Mode = Literal["w:", "w:gz", "w:bz2", "w:xz"]

SUFFIXES: dict[str, _Mode] = {
    ".tar": "w:",
    ".tar.gz": "w:gz",
    ".tgz": "w:gz",
    ".tar.bz2": "w:bz2",
    ".tar.xz": "w:xz",
}
"""Suffix of the archive's name -> mode in which `tarfile` writes it."""


def name_folder(path: Path) -> str:
    """Return the top folder of an archive: the file's name without its suffix.

    Raises:
        RefusedError: the name has no suffix of `SUFFIXES`, or nothing before it.
    """
    folder = path.name.removesuffix(_find_suffix(path))
    if not folder.strip("."):
        raise RefusedError(f"{path}: the file name consists of a suffix only")
    return folder


def write_archive(capture: Capture, path: Path, is_forced: bool, at: float) -> int:
    """Write a capture to a file that only its owner may read; return its size in bytes.

    Args:
        at: modification time of the entries, in seconds since 1970.

    Raises:
        RefusedError: see `name_folder`; or the file already exists.
        HostDataError: the file cannot be written; no part of it is left.
    """
    data = _render(capture, name_folder(path), SUFFIXES[_find_suffix(path)], at)
    try:
        _write_file(data, path, is_forced)
    except FileExistsError:
        raise RefusedError(f"{path} already exists; use --force to replace it") from None
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error
    return len(data)


def _find_suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise RefusedError(f"{path}: unknown suffix: expected one of {', '.join(SUFFIXES)}")


def _render(capture: Capture, folder: str, mode: _Mode, at: float) -> bytes:
    """Return the archive's bytes; entries are sorted, each folder before its contents."""
    names = {*capture.files, *capture.links, *capture.folders}
    names |= {name[:length] for name in names for length in range(len(name))}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(names):
            entry = tarfile.TarInfo("/".join((folder, *name)))
            entry.mtime, entry.uname, entry.gname = int(at), "root", "root"
            data = b""
            if name in capture.files:
                data = capture.files[name]
                entry.size, entry.mode = len(data), 0o644
            elif name in capture.links:
                entry.type, entry.linkname = tarfile.SYMTYPE, capture.links[name]
                entry.mode = 0o777
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _write_file(data: bytes, path: Path, is_forced: bool) -> None:
    """Write a temporary file in the target's folder and rename it.

    Raises:
        FileExistsError: the target exists and `is_forced` is false.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".capture-")
    temporary = Path(name)
    is_reserved = False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if not is_forced:
            path.touch(mode=0o600, exist_ok=False)
            is_reserved = True
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        if is_reserved:
            path.unlink(missing_ok=True)
        raise
