"""Read http_basic's user file and replace it."""

import contextlib
import fcntl
import grp
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

SERVICE_GROUP = "nodetracker"
"""The group of the unit that reads the file."""

MODE = 0o640


def read_user_file(path: Path) -> str:
    """Return the file's text, "" if it does not exist.

    Raises:
        OSError: it cannot be read.
        UnicodeError: it is not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""


def edit_user_file(path: Path, edit: Callable[[str], str], group: str = SERVICE_GROUP) -> None:
    """Replace the file by an edited one, readable by a group; readers see the old or the new one.

    Edits of several processes are made one after the other.

    Args:
        edit: returns the new text from the old one; what it raises leaves the file unchanged.
        group: is not set if it does not exist, or this user may not set it.

    Raises:
        OSError: the file cannot be read, or its directory not be written.
        UnicodeError: it is not UTF-8.
    """
    path = path.resolve()  # a link is kept
    with _locked(path.parent):
        text = edit(read_user_file(path))
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                _set_group(file.fileno(), group)
                os.fchmod(file.fileno(), MODE)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_group(descriptor: int, group: str) -> None:
    try:
        os.fchown(descriptor, -1, grp.getgrnam(group).gr_gid)
    except (KeyError, PermissionError):
        pass
