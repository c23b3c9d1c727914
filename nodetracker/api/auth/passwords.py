"""Hash and check passwords with bcrypt; the only import of bcrypt."""

import re

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
