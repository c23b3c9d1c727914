"""Spoil the files of captured machines one at a time, in each way in which a file can be bad."""

import enum
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodetracker.model.node import HostSnapshot
from nodetracker.virt.host.roots import MAX_TEXT_BYTES, Roots, observe_reads
from nodetracker.virt.local.plugin import LocalDriver
from nodetracker.virt.plugin import DriverEnvironment
from tests.hosts.captures import unpack
from tests.probes import InlineProbeRunner

_BUS = re.compile(r"\bpci[0-9a-f]{4,8}:[0-9a-f]{2}\b")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9]")
_SCSI_DISK = re.compile(r"\bsd[a-z]+\b")


class Way(enum.StrEnum):
    """A way in which a path can be bad."""

    MISSING = "missing"
    GONE = "gone"  # between listing and reading
    EMPTY = "empty"
    SHORT = "short"
    NOT_UTF8 = "not-utf8"
    HUGE = "huge"
    DIRECTORY = "directory"
    FILE = "file"
    UNREADABLE = "unreadable"


WAYS_OF_FILE = frozenset(Way) - {Way.FILE}
WAYS_OF_LINK = frozenset({Way.MISSING, Way.GONE, Way.DIRECTORY, Way.FILE, Way.UNREADABLE})
WAYS_OF_FOLDER = frozenset({Way.MISSING, Way.GONE, Way.EMPTY, Way.FILE, Way.UNREADABLE})


@dataclass(frozen=True)
class Target:
    """A path of a machine that a reader asks for."""

    name: str
    ways: frozenset[Way]

    @property
    def kind(self) -> str:
        """The path without the numbers in it."""
        name = _BUS.sub("pciBUS", _ADDRESS.sub("ADDRESS", _SCSI_DISK.sub("sdX", self.name)))
        return re.sub("[0-9]+", "N", name)


class Machine:
    """A captured machine, unpacked.

    Args:
        archive: one folder with ``proc``, ``sys`` and perhaps ``etc``.
        folder: where it is unpacked.
    """

    def __init__(self, archive: Path, folder: Path) -> None:
        unpack(archive, folder / "machine")
        (self.root,) = (folder / "machine").iterdir()
        self._kept = folder / "kept"
        self.roots = Roots(self.root / "proc", self.root / "sys", self.root)
        environment = DriverEnvironment(
            "host-1",
            str(folder),
            self.roots,
            InlineProbeRunner(5),
        )
        self._driver = LocalDriver(environment)

    def read(self) -> HostSnapshot:
        """Read the machine; only HostDataError fails a fact."""
        return self._driver.get_available_resource("host-1")

    def list_targets(self) -> list[Target]:
        """Return every path that the readers ask for and that exists, ascending."""
        requests = _Requests(self.root)
        with observe_reads(requests):
            self.read()
        return [Target(name, ways) for name, ways in sorted(requests.ways.items())]

    @contextmanager
    def rewritten(self, name: str, content: str | bytes) -> Iterator[None]:
        """Give one file other content while the context is open."""
        path = self.root / name
        kept = path.read_bytes()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        try:
            yield
        finally:
            path.write_bytes(kept)

    @contextmanager
    def spoiled(self, name: str, way: Way) -> Iterator[None]:
        """Spoil one path while the context is open."""
        path = self.root / name
        is_folder = path.is_dir()
        if way is Way.GONE:
            with observe_reads(_Removal(path, self._kept)):
                yield
        else:
            path.rename(self._kept)
            if way is Way.EMPTY and is_folder:
                path.mkdir()
            else:
                _WRITERS[way](path, self._kept)
            yield
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        self._kept.rename(path)


class _Requests:
    """Records the paths that are asked for below a folder, with their ways to be bad."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.ways: dict[str, frozenset[Way]] = {}

    def on_read(self, path: Path, data: bytes) -> None:
        self._add(path, WAYS_OF_FILE)

    def on_lookup(self, path: Path) -> None:
        if path.is_symlink():
            self._add(path, WAYS_OF_LINK)

    def on_list(self, path: Path, names: tuple[str, ...]) -> None:
        self._add(path, WAYS_OF_FOLDER)

    def on_failure(self, path: Path, reason: str) -> None:
        raise AssertionError(f"{path}: {reason}")

    def _add(self, path: Path, ways: frozenset[Way]) -> None:
        if path.is_relative_to(self._root):
            self.ways.setdefault(str(path.relative_to(self._root)), ways)


class _Removal:
    """Moves a path away when a folder above it is listed, else when anything else is read."""

    def __init__(self, path: Path, kept: Path) -> None:
        self._path = path
        self._kept = kept

    def on_read(self, path: Path, data: bytes) -> None:
        if path != self._path:
            self._remove()

    def on_lookup(self, path: Path) -> None: ...

    def on_list(self, path: Path, names: tuple[str, ...]) -> None:
        if self._path.is_relative_to(path):
            self._remove()

    def on_failure(self, path: Path, reason: str) -> None: ...

    def _remove(self) -> None:
        if os.path.lexists(self._path) and not os.path.lexists(self._kept):
            self._path.rename(self._kept)


def _write_short(path: Path, kept: Path) -> None:
    data = kept.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _write_huge(path: Path, kept: Path) -> None:
    with path.open("wb") as opened:
        opened.truncate(MAX_TEXT_BYTES + 1)


_WRITERS: dict[Way, Callable[[Path, Path], object]] = {
    Way.MISSING: lambda path, kept: None,
    Way.EMPTY: lambda path, kept: path.touch(),
    Way.SHORT: _write_short,
    Way.NOT_UTF8: lambda path, kept: path.write_bytes(b"\xff\xfe" + kept.read_bytes()),
    Way.HUGE: _write_huge,
    Way.DIRECTORY: lambda path, kept: path.mkdir(),
    Way.FILE: lambda path, kept: path.write_text("not what is expected\n"),
    # root may read a file without permissions, but cannot follow a link to itself either
    Way.UNREADABLE: lambda path, kept: path.symlink_to(path.name),
}
