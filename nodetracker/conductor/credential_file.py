"""Keep an agent's credential in a file of its state directory, readable by its user alone."""

import os
from pathlib import Path

from nodetracker.model.credential import make_secret
from nodetracker.model.errors import IdentityError

CREDENTIAL_FILE = "credential"
NEXT_FILE = "credential.next"
"""A credential that conductors may not know yet: its file is written before it is sent."""

_MAX_BYTES = 256


def read_credential(state_path: Path, name: str = CREDENTIAL_FILE) -> str | None:
    """Return the credential, None without one.

    Raises:
        IdentityError: the file cannot be read.
    """
    path = state_path / name
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii", errors="replace").strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error


def make_next(state_path: Path) -> str:
    """Return the credential that is to be sent next; an interrupted attempt goes on with its own.

    Raises:
        IdentityError: the file cannot be written.
    """
    existing = read_credential(state_path, NEXT_FILE)
    if existing is not None:
        return existing
    secret = make_secret()
    path = state_path / NEXT_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise IdentityError(f"{path} cannot be written: {error.strerror}") from error
    return secret


def use_next(state_path: Path) -> None:
    """Replace the credential by the next one, which conductors know by now.

    Raises:
        IdentityError: the file cannot be replaced.
    """
    try:
        (state_path / NEXT_FILE).replace(state_path / CREDENTIAL_FILE)
    except OSError as error:
        path = state_path / CREDENTIAL_FILE
        raise IdentityError(f"{path} cannot be replaced: {error.strerror}") from error
