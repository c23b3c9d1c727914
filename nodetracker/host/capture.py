"""A machine's files as the readers here read them, to be read again where there is no such machine.

What is captured is what was read, link by link and byte by byte: there is no
list of paths beside the readers' own.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from nodetracker.errors import HostDataError, NotFoundError
from nodetracker.host.cpu import read_cpu_info
from nodetracker.host.disk import read_disks
from nodetracker.host.filesystem import read_mount
from nodetracker.host.gpu import read_gpus
from nodetracker.host.memory import read_memory_info
from nodetracker.host.numa import read_numa_topology
from nodetracker.host.pci import read_mdev_types, read_netdevs, read_pci_devices
from nodetracker.host.roots import Roots, observe_reads
from nodetracker.host.system import read_system_info

_MAX_LINKS = 40

T = TypeVar("T")
Name = tuple[str, ...]
"""Parts of a path in the capture, whose rootfs has the other roots in ``proc`` and ``sys``."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What readers read of one machine.

    Attributes:
        files: name -> content.
        links: name -> target, relative.
        folders: names of what was listed, empty ones as well.
        unreadable: path -> why, of what is there and could not be read.
    """

    files: Mapping[Name, bytes] = field(default_factory=dict)
    links: Mapping[Name, str] = field(default_factory=dict)
    folders: frozenset[Name] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def capture_machine(roots: Roots) -> Capture:
    """Read everything that is read of a machine, and return the files.

    It is read as another machine's, as the capture will be: that asks files
    for what this machine's kernel would tell by itself. What only a running
    machine tells (NVML, sizes of filesystems) is in no file and so not there.

    Raises:
        NotFoundError: nothing is there to be read.
    """
    recorder = _Recorder(roots)
    foreign = replace(roots, is_captured=True)
    with observe_reads(recorder):
        cpu = _try(lambda: read_cpu_info(foreign))
        _try(lambda: read_memory_info(foreign))
        _try(lambda: read_numa_topology(foreign, cpu))
        pci = _try(lambda: read_pci_devices(foreign))
        _try(lambda: read_netdevs(foreign))
        _try(lambda: read_mdev_types(foreign))
        _try(lambda: read_gpus(foreign, pci or ()))
        _try(lambda: read_disks(foreign))
        _try(lambda: read_mount(Path("/"), foreign))
        _try(lambda: read_system_info(foreign))
    if not recorder.files:
        raise NotFoundError(
            f"there is no machine to be read below {roots.procfs}, {roots.sysfs} and {roots.rootfs}"
        )
    return Capture(recorder.files, recorder.links, frozenset(recorder.folders), recorder.unreadable)


class _Recorder:
    """Keeps what is read below the roots, as a tree with the links that lead through it.

    Readers of ``/sys`` tell devices by their links, so these are kept there.
    Elsewhere a file lies under the name by which it was asked for, as
    ``/proc/self`` and ``/etc/os-release`` are links that lead to other names
    on each machine.
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

    def was_read(self, path: Path, data: bytes) -> None:
        """Keep a file's content, the first where it is read twice."""
        name = self._name(path)
        if name is not None:
            self.files.setdefault(self._follow(name), data)

    def was_seen(self, path: Path) -> None:
        """Keep a link with its target, or that a file or folder is there."""
        name = self._name(path)
        if name is None:
            return
        place = (*self._follow(name[:-1]), name[-1])
        if self._keep_link(place) is not None and not os.path.exists(path):  # noqa: PTH110
            return
        if os.path.isdir(path):  # noqa: PTH112 Path.is_dir() raises where we may not look
            self.folders.add(self._follow(name))
        elif os.path.isfile(path):  # noqa: PTH113
            self.files.setdefault(self._follow(name), b"")

    def was_listed(self, path: Path, names: tuple[str, ...]) -> None:
        """Keep the links and folders of a directory; its files are kept when they are read."""
        name = self._name(path)
        if name is None:
            return
        place = self._follow(name)
        self.folders.add(place)
        for child in names:
            is_link = self._keep_link((*place, child)) is not None
            if not is_link and os.path.isdir(path / child):  # noqa: PTH112
                self.folders.add((*place, child))

    def has_failed(self, path: Path, reason: str) -> None:
        """Keep why something could not be read."""
        self.unreadable[str(path)] = reason

    def _name(self, path: Path) -> Name | None:
        """Return the name of a path below one of the roots, None for what is below none."""
        for base, name in self._places:
            if path.is_relative_to(base):
                return (*name, *path.relative_to(base).parts)
        return None

    def _follow(self, name: Name) -> Name:
        """Return where a name of sysfs really is, keeping the links on the way."""
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
        """Keep a link of sysfs; return where it leads, None when it is none."""
        if name[:1] != ("sys",) or len(name) == 1:
            return None
        try:
            target = PurePosixPath(self._sysfs.joinpath(*name[1:]).readlink())
        except OSError:
            return None
        place = _join(name[:-1], target)
        if place[:1] != ("sys",):  # what it leads to lies beside it; the last part tells still
            target = PurePosixPath("outside", target.name)
            place = _join(name[:-1], target)
        self.links[name] = str(target)
        return place


def _join(folder: Name, target: PurePosixPath) -> Name:
    return PurePosixPath(os.path.normpath(PurePosixPath(*folder, target))).parts


def _try(read: Callable[[], T]) -> T | None:
    """Go on where a reader gives up: whoever reads the capture meets the same."""
    try:
        return read()
    except HostDataError:
        return None
