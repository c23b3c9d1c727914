"""Name the process that holds the write lock of an SQLite file, from ``/proc/locks``."""

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_WAL_WRITE_BYTE = 120  # of the file that ends in -shm: WAL_WRITE_LOCK of wal.c
_LOCK_BYTES = range(0x40000000, 0x40000000 + 512)  # of the database itself: os.h
_STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True)
class FileLock:
    """A lock for writing on a range of a file's bytes.

    Attributes:
        file: ``MAJOR:MINOR:INODE`` of the file, the device in hexadecimal.
        end: the last byte, None for all bytes from the first one on.
    """

    pid: int
    file: str
    start: int
    end: int | None

    def covers(self, first: int, last: int) -> bool:
        """Return whether any of these bytes is locked."""
        return self.start <= last and (self.end is None or self.end >= first)


def parse_locks(text: str) -> list[FileLock]:
    r"""Return the granted POSIX locks for writing in the text of ``/proc/locks``.

    Source: proc(5).

    >>> parse_locks("1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 120 120\n")
    [FileLock(pid=3568, file='fd:00:2531452', start=120, end=120)]
    """
    locks = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 8 or fields[1] != "POSIX" or fields[3] != "WRITE":
            continue  # another kind, or "->": a process that waits
        _, _, _, _, pid, file, start, end = fields
        locks.append(FileLock(int(pid), file, int(start), None if end == "EOF" else int(end)))
    return locks


def find_holder(path: Path, proc: Path = _PROC) -> str | None:
    """Describe the process that holds the write lock of an SQLite file, None if unknown.

    Processes of other machines and of other pid namespaces are unknown.
    """
    try:
        locks = parse_locks((proc / "locks").read_text())
    except (OSError, ValueError):
        return None
    shm = path.with_name(f"{path.name}-shm")
    held = {
        _identify(shm): (_WAL_WRITE_BYTE, _WAL_WRITE_BYTE),
        _identify(path): (_LOCK_BYTES[0], _LOCK_BYTES[-1]),
    }
    for lock in locks:
        if lock.file in held and lock.covers(*held[lock.file]):
            return _describe_process(lock.pid, proc)
    return None


def _identify(path: Path) -> str:
    """Return a file's device and inode as in ``/proc/locks``, "" if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _describe_process(pid: int, proc: Path) -> str:
    if pid == os.getpid():
        return "this process"
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return f"process {pid}"
    name, _, rest = text.partition("(")[2].rpartition(")")
    is_stopped = rest.split()[:1] and rest.split()[0] in _STOPPED
    return f"process {pid} ({name})" + (", which is stopped" if is_stopped else "")
