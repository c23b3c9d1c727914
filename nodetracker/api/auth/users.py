"""Parse and edit the text of http_basic's user file: a line ``NAME:BCRYPT_HASH`` for each user."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.api.auth.passwords import get_rounds

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
