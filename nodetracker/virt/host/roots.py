"""Locate and read the host's files, and collect those that cannot be used.

All readers of this package use this module. A reader calls `Problems.attempt`
for what a value can do without, so that such a file costs only what it
describes. What a value needs, or a parser does not understand, raises
HostDataError, and the fact is held.
"""

import errno
import os
import re
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import HostProblem

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Limit for one file; ``/proc/cpuinfo`` of two thousand CPUs is 3 MiB."""

_CHUNK_BYTES = 64 * 1024
_LABEL_BYTES = 4096
_NO_PATH = "is not a valid path"
"""Of a path with a NUL byte, or a character that no encoding has."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories that are read as ``/proc``, ``/sys`` and ``/``.

    In a container the host's directories have other names, and a captured
    machine is unpacked in a directory.

    Attributes:
        is_captured: treat the roots as another machine's, whatever their boot id.
    """

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")
    is_captured: bool = False


class ReadObserver(Protocol):
    """Receives a call for each path that a reader accesses, with the result.

    `on_lookup` is called for a link that was read and a path whose existence was
    checked, `on_failure` for a path that exists and could not be read.
    """

    def on_read(self, path: Path, data: bytes) -> None: ...

    def on_lookup(self, path: Path) -> None: ...

    def on_list(self, path: Path, names: tuple[str, ...]) -> None: ...

    def on_failure(self, path: Path, reason: str) -> None: ...


_OBSERVER: ContextVar[ReadObserver | None] = ContextVar("read_observer", default=None)


@contextmanager
def observe_reads(observer: ReadObserver) -> Iterator[None]:
    """Report all reads of this thread to an observer while the context is open."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def is_this_machine(roots: Roots) -> bool:
    """Return whether `roots` belong to the machine that this process runs on.

    In a container the host's ``/proc`` has another name; the kernel's boot id
    distinguishes it from a captured machine.
    """
    if roots.is_captured:
        return False
    own = Roots().procfs
    if roots.procfs == own:
        return True
    boot_id = read_label(roots.procfs / "sys/kernel/random/boot_id")
    return boot_id != "" and boot_id == read_label(own / "sys/kernel/random/boot_id")


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a file that must exist.

    Args:
        errors: handling of bytes that are not UTF-8, as in `bytes.decode`;
            files with free text from firmware need ``replace``.

    Raises:
        HostDataError: the file is absent, unreadable, larger than
            `MAX_TEXT_BYTES` or not UTF-8; the fact is held.
    """
    text = _read_text(path, errors, frozenset())
    assert text is not None
    return text


def read_optional_text(path: Path, errors: str = "strict") -> str | None:
    """Return the text of an optional file, None when it does not exist.

    A device that is being removed causes ENODEV or ENXIO on a file that is
    already open; the file then counts as absent, too.
    """
    return _read_text(path, errors, _ABSENT)


def _read_text(path: Path, errors: str, absent: Container[int]) -> str | None:
    try:
        # Some kernels (2.6 in node/online, 5.15 in lists of CPUs) end a text with a NUL byte.
        return _read_bytes(path).rstrip(b"\0").decode(errors=errors)
    except OSError as error:
        if error.errno in absent:
            return None
        raise HostDataError(str(path), describe_os_error(error)) from error
    except UnicodeDecodeError as error:
        raise HostDataError(str(path), "is not UTF-8 text") from error


def read_label(path: Path) -> str:
    """Return a name that firmware or a driver provides, "" when it is unreadable.

    Such text is only displayed, so an unreadable file (only root can read
    serial numbers) or invalid bytes affect nothing but the name itself.
    """
    return clean_label(read_label_bytes(path))


def read_label_bytes(path: Path) -> bytes:
    """Return the first bytes of a file that contains a name, b"" when it is unreadable."""
    try:
        return _read_bytes(path)[:_LABEL_BYTES]
    except (OSError, HostDataError):
        return b""


def clean_label(data: bytes) -> str:
    r"""Return the printable part of a name, blanks trimmed.

    >>> clean_label(b"PERC H700       \n"), clean_label(b"Raspberry Pi 4\0")
    ('PERC H700', 'Raspberry Pi 4')
    """
    text = data.decode(errors="replace")
    return "".join(char for char in text if char.isprintable()).strip()


def list_directory(path: Path) -> tuple[str, ...] | None:
    """Return the names in a directory in ascending order, None when it does not exist.

    Raises:
        HostDataError: the directory cannot be listed, or is a file.
    """
    observer = _OBSERVER.get()
    try:
        names = tuple(sorted(os.listdir(path)))  # noqa: PTH208 names are twice as fast as paths
    except OSError as error:
        _notify_failure(observer, path, error)
        is_file = error.errno == errno.ENOTDIR and os.path.lexists(path)
        if error.errno in _ABSENT and not is_file:
            return None
        raise HostDataError(str(path), describe_os_error(error)) from error
    except ValueError as error:
        raise HostDataError(str(path), _NO_PATH) from error
    if observer is not None:
        observer.on_list(path, names)
    return names


def path_exists(path: Path) -> bool:
    """Return whether a path is visible to this process; a broken link is not."""
    if (observer := _OBSERVER.get()) is not None:
        observer.on_lookup(path)
    return os.path.exists(path)  # noqa: PTH110 Path.exists() raises on EACCES


def read_link_name(path: Path) -> str | None:
    """Return the last part of a symbolic link's target, None when the link does not exist.

    Raises:
        HostDataError: the path exists and is not a readable link.
    """
    if (observer := _OBSERVER.get()) is not None:
        observer.on_lookup(path)
    try:
        return path.readlink().name
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise HostDataError(str(path), describe_os_error(error)) from error


def read_link_parent(path: Path) -> str | None:
    """Return the part before the last one of a symbolic link's target, None without the link.

    Raises:
        HostDataError: the path exists and is not a readable link.
    """
    if read_link_name(path) is None:
        return None
    try:
        return path.readlink().parent.name
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error


def parse_integer(text: str, source: str) -> int:
    r"""Parse one decimal number, e.g. ``"12\n"``.

    Raises:
        HostDataError: the text is anything else, such as two numbers or digits
            that are not ASCII.
    """
    digits = text.strip()
    if not _INTEGER.fullmatch(digits):
        raise HostDataError(source, "is not a decimal number")
    return int(digits)


def read_integer(path: Path) -> int:
    """Return the decimal number of a file that must exist."""
    return parse_integer(read_text(path), str(path))


def read_optional_integer(path: Path) -> int | None:
    """Return the decimal number of an optional file, None when it does not exist."""
    text = read_optional_text(path)
    return None if text is None else parse_integer(text, str(path))


def describe_os_error(error: OSError) -> str:
    """Return the description of an operating system error, without variable parts."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _read_bytes(path: Path) -> bytes:
    observer = _OBSERVER.get()
    try:
        data = _read_file(path)
    except ValueError as error:
        raise HostDataError(str(path), _NO_PATH) from error
    except (OSError, HostDataError) as error:
        _notify_failure(observer, path, error)
        raise
    if observer is not None:
        observer.on_read(path, data)
    return data


def _notify_failure(
    observer: ReadObserver | None, path: Path, error: OSError | HostDataError
) -> None:
    if observer is None or (isinstance(error, OSError) and error.errno in _ABSENT):
        return
    reason = describe_os_error(error) if isinstance(error, OSError) else error.reason
    observer.on_failure(path, reason)


def _read_file(path: Path) -> bytes:
    # os.read is cheaper than a buffered file for hundreds of small files a
    # minute. O_NONBLOCK: a FIFO in the tree must not block the reader.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        chunks = []
        size = 0
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_TEXT_BYTES:
                raise HostDataError(str(path), f"is larger than {MAX_TEXT_BYTES} bytes")
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


MAX_PROBLEMS = 16
"""Number of problems that one reader names; further ones are only counted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """A value without the parts whose files cannot be used, and these files."""

    value: T
    problems: tuple[HostProblem, ...] = ()


class Problems:
    """The files that one reading could not use; each is a warning.

    Args:
        source: what is read, e.g. a directory; names the problems that are only counted.
    """

    def __init__(self, source: object) -> None:
        self._source = str(source)
        self._found: dict[str, str] = {}

    def attempt(self, read: Callable[[], T], default: T, cost: str) -> T:
        """Return what `read` returns, or `default` and a problem if it raises HostDataError.

        Args:
            cost: what is lost, as part of a sentence.
        """
        try:
            return read()
        except HostDataError as error:
            self.add(error.source, error.reason, cost)
            return default

    def add(self, path: str, reason: str, cost: str) -> None:
        """Add a problem; the first one of a path counts."""
        self._found.setdefault(path, f"{reason}; {cost}")

    def list_all(self) -> tuple[HostProblem, ...]:
        found = sorted(self._found.items())
        named = [HostProblem(path, text) for path, text in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            further = len(found) - MAX_PROBLEMS
            named.append(HostProblem(self._source, f"{further} more files cannot be used"))
        return tuple(named)
