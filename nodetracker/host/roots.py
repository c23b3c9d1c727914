"""Locate and read the host's files; all readers of this package use this module."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nodetracker.model.errors import HostDataError

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Limit for one file; ``/proc/cpuinfo`` of two thousand CPUs is 3 MiB."""

_CHUNK_BYTES = 64 * 1024
_LABEL_BYTES = 4096
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
    """Receives a call for each path that a reader accesses, with the result."""

    def on_read(self, path: Path, data: bytes) -> None:
        """Handle a file that was read completely."""

    def on_lookup(self, path: Path) -> None:
        """Handle a link that was read, or a path whose existence was checked."""

    def on_list(self, path: Path, names: tuple[str, ...]) -> None:
        """Handle a directory that was listed."""

    def on_failure(self, path: Path, reason: str) -> None:
        """Handle a path that exists and could not be read."""


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
        path: the file.
        errors: handling of bytes that are not UTF-8, as in `bytes.decode`;
            files with free text from firmware need ``replace``.

    Raises:
        HostDataError: the file is absent, unreadable, larger than
            `MAX_TEXT_BYTES` or not UTF-8; the fact is held.
    """
    try:
        return _decode(_read_bytes(path), errors)
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error
    except UnicodeDecodeError as error:
        raise HostDataError(str(path), "is not UTF-8 text") from error


def read_optional_text(path: Path, errors: str = "strict") -> str | None:
    """Return the text of an optional file, None when it does not exist.

    A device that is being removed causes ENODEV or ENXIO on a file that is
    already open; the file then counts as absent, too.

    Raises:
        HostDataError: the file exists and cannot be read, see `read_text`.
    """
    try:
        return _decode(_read_bytes(path), errors)
    except OSError as error:
        if error.errno in _ABSENT:
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


def describe_os_error(error: OSError) -> str:
    """Return the description of an operating system error, without variable parts."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _decode(data: bytes, errors: str) -> str:
    # Some kernels (2.6 in node/online, 5.15 in lists of CPUs) end a text with a NUL byte.
    return data.rstrip(b"\0").decode(errors=errors)


def _read_bytes(path: Path) -> bytes:
    observer = _OBSERVER.get()
    try:
        data = _read_file(path)
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
