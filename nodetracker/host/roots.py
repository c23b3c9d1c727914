"""Where the host's files are, and how they are read: every reader comes through here."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nodetracker.errors import HostDataError

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""``/proc/cpuinfo`` of two thousand CPUs is 3 MiB; what is larger than this is no such file."""

_CHUNK_BYTES = 64 * 1024
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories that stand for ``/proc``, ``/sys`` and ``/``.

    An agent in a container finds the host's under other names, and a captured
    machine lies unpacked in a directory.

    Attributes:
        is_captured: they are read as another machine's, whatever their boot id says.
    """

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")
    is_captured: bool = False


class ReadObserver(Protocol):
    """Is told of all that readers ask for, by their own paths, and of what they are given."""

    def was_read(self, path: Path, data: bytes) -> None:
        """A file was read whole."""

    def was_seen(self, path: Path) -> None:
        """A link was looked at, or something that may be absent was looked for."""

    def was_listed(self, path: Path, names: tuple[str, ...]) -> None:
        """A directory was listed."""

    def has_failed(self, path: Path, reason: str) -> None:
        """Something is there and could not be read."""


_OBSERVER: ContextVar[ReadObserver | None] = ContextVar("read_observer", default=None)


@contextmanager
def observe_reads(observer: ReadObserver) -> Iterator[None]:
    """Let an observer be told of all that is read meanwhile, in this thread."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def is_this_machine(roots: Roots) -> bool:
    """Tell whether `roots` show the machine that this process runs on.

    A container has the host's ``/proc`` under another name; the kernel's boot
    id tells it from a captured machine.
    """
    if roots.is_captured:
        return False
    own = Roots().procfs
    if roots.procfs == own:
        return True
    boot_id = read_label(roots.procfs / "sys/kernel/random/boot_id")
    return boot_id != "" and boot_id == read_label(own / "sys/kernel/random/boot_id")


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a file that must be there.

    Args:
        path: the file.
        errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`;
            files in which firmware writes free text ask for ``replace``.

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
    """Return the text of a file whose absence is normal, None when it is absent.

    A device that goes away answers ENODEV or ENXIO from a file that is still
    open; that is absence, too.

    Raises:
        HostDataError: the file is there and cannot be read, see `read_text`.
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
    """Return a name that firmware or a driver wrote, "" when it does not tell.

    Such text is shown and never computed with, so an unreadable file (serial
    numbers are root's) and odd bytes cost no more than the name itself.
    """
    return clean_label(read_label_bytes(path))


def read_label_bytes(path: Path) -> bytes:
    """Return what holds a name in a form of its own, b"" when it does not tell."""
    try:
        return _read_bytes(path)
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
    """Return the names in a directory in ascending order, None when it is absent.

    Raises:
        HostDataError: the directory is there and cannot be listed.
    """
    observer = _OBSERVER.get()
    try:
        names = tuple(sorted(os.listdir(path)))  # noqa: PTH208 names, not paths: half the price
    except OSError as error:
        _log_failure(observer, path, error)
        if error.errno in _ABSENT:
            return None
        raise HostDataError(str(path), describe_os_error(error)) from error
    if observer is not None:
        observer.was_listed(path, names)
    return names


def is_there(path: Path) -> bool:
    """Tell whether a path exists as far as this process may see; a broken link does not."""
    if (observer := _OBSERVER.get()) is not None:
        observer.was_seen(path)
    return os.path.exists(path)  # noqa: PTH110 Path.exists() raises where we may not look


def read_link_name(path: Path) -> str | None:
    """Return the last part of what a symbolic link points to, None when it is absent.

    Raises:
        HostDataError: it is there and is no readable link.
    """
    if (observer := _OBSERVER.get()) is not None:
        observer.was_seen(path)
    try:
        return path.readlink().name
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise HostDataError(str(path), describe_os_error(error)) from error


def parse_integer(text: str, source: str) -> int:
    r"""Read one decimal number, e.g. ``"12\n"``.

    Raises:
        HostDataError: it is anything else, such as two numbers or a digit
            that is not ASCII.
    """
    digits = text.strip()
    if not _INTEGER.fullmatch(digits):
        raise HostDataError(source, "is not one decimal number")
    return int(digits)


def describe_os_error(error: OSError) -> str:
    """Return an operating system error in words that stay the same."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _decode(data: bytes, errors: str) -> str:
    # Some kernels (2.6 in node/online, 5.15 in lists of CPUs) end a text with a NUL byte.
    return data.rstrip(b"\0").decode(errors=errors)


def _read_bytes(path: Path) -> bytes:
    observer = _OBSERVER.get()
    try:
        data = _read_file(path)
    except (OSError, HostDataError) as error:
        _log_failure(observer, path, error)
        raise
    if observer is not None:
        observer.was_read(path, data)
    return data


def _log_failure(observer: ReadObserver | None, path: Path, error: OSError | HostDataError) -> None:
    if observer is None or (isinstance(error, OSError) and error.errno in _ABSENT):
        return
    reason = describe_os_error(error) if isinstance(error, OSError) else error.reason
    observer.has_failed(path, reason)


def _read_file(path: Path) -> bytes:
    # os.read and not a buffered file: hundreds of small files a minute. A tree
    # that holds a FIFO must not stop the reader, hence O_NONBLOCK.
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
