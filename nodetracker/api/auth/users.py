"""http_basic's user file with its bcrypt hashes; imported only where it is used, as is bcrypt."""

import contextlib
import fcntl
import grp
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import bcrypt

ROUNDS = 12
"""Logarithm of the number of rounds of a new hash: about 0.3 s a check."""

MAX_PASSWORD_BYTES = 72
"""bcrypt ignores what follows; the library raises since 5.0."""

_HASH = re.compile(r"\$2[aby]\$(?P<rounds>0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


def hash_password(password: str, rounds: int = ROUNDS) -> str:
    """Return the hash of a password with a new salt.

    Raises:
        ValueError: the password is empty or too long, or has a NUL.
    """
    encoded = password.encode()
    if not encoded:
        raise ValueError("the password is empty")
    if len(encoded) > MAX_PASSWORD_BYTES:
        raise ValueError(
            f"the password has {len(encoded)} bytes: expected at most {MAX_PASSWORD_BYTES}"
        )
    if "\0" in password:
        raise ValueError("the password has a NUL")
    return bcrypt.hashpw(encoded, bcrypt.gensalt(rounds)).decode()


def is_password(password: bytes, password_hash: str) -> bool:
    """Return whether a hash is that of a password; one that is too long has no hash."""
    if len(password) > MAX_PASSWORD_BYTES:
        return False
    return bcrypt.checkpw(password, password_hash.encode())


def make_wrong_hash(rounds: int) -> str:
    """Return a hash that practically no password has, to spend the time of a check."""
    return f"$2b${rounds:02}${'.' * 53}"


def get_rounds(password_hash: str) -> int | None:
    """Return the logarithm of a hash's number of rounds, None if it is not a bcrypt hash."""
    match = _HASH.fullmatch(password_hash)
    return None if match is None else int(match["rounds"])


_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class UserFile:
    """The users of a file.

    Attributes:
        hashes: user -> bcrypt hash.
        problems: a text for each invalid line, which may hold a password and is not quoted.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def parse_user_file(text: str) -> UserFile:
    """Return a file's users; invalid lines and further lines of a user are left out.

    Blank lines and those that start with ``#`` are comments.
    """
    hashes: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, password_hash = line.partition(":")
        problem = _find_problem(name, password_hash.rstrip(), hashes)
        if problem is None:
            hashes[name] = password_hash.rstrip()
        else:
            problems.append(f"line {number}: {problem}")
    return UserFile(hashes, tuple(problems))


def _find_problem(name: str, password_hash: str, earlier: Mapping[str, str]) -> str | None:
    if not is_user_name(name):
        return "invalid user name"
    if get_rounds(password_hash) is None:
        return "expected NAME:BCRYPT_HASH"
    return "duplicate user" if name in earlier else None


def is_user_name(name: str) -> bool:
    """Return whether a text can be a user's name in the file and in HTTP's Basic scheme."""
    is_short = 0 < len(name) <= _MAX_NAME
    return is_short and name.isprintable() and not set(name) & set(": #")


def set_user(text: str, name: str, password_hash: str) -> str:
    """Return the file's text with a user's hash replaced or added; other lines are kept."""
    lines = text.splitlines()
    own = [number for number, line in enumerate(lines) if _is_of(line, name)]
    others = [line for line in lines if not _is_of(line, name)]
    others.insert(own[0] if own else len(others), f"{name}:{password_hash}")
    return _join(others)


def delete_user(text: str, name: str) -> str:
    """Return the file's text without a user; other lines are kept."""
    return _join([line for line in text.splitlines() if not _is_of(line, name)])


def _is_of(line: str, name: str) -> bool:
    return line.startswith(f"{name}:")


def _join(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


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
