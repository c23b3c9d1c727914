"""Keep the credential of this host in its state directory, in files that the agent's user reads.

A file is written whole beside the one that it replaces, and given to the agent's user,
because root may run the command that replaces a credential.
"""

import os
import re
import stat
import tempfile
from pathlib import Path

from nodetracker.model.credential import CREDENTIAL_FILE, make_secret
from nodetracker.model.errors import IdentityError
from nodetracker.model.service import COMPUTE_ID_FILE
from nodetracker.process.state_file import read_state_file

NEXT_FILE = "credential.next"
"""A credential that conductors may not know yet: its file is written before it is sent."""

_MAX_BYTES = 256
_SECRET = re.compile("[0-9a-f]{64}")


def read_credential(state_path: Path, name: str = CREDENTIAL_FILE) -> str | None:
    """Return the credential, None without one, or where a write of its file was interrupted.

    Raises:
        IdentityError: the file cannot be read.
    """
    path = state_path / name
    try:
        text = read_state_file(path, _MAX_BYTES).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error
    return text if _SECRET.fullmatch(text) else None


def make_next(state_path: Path) -> str:
    """Return the credential that is to be sent next; an interrupted attempt goes on with its own.

    What is not a file of the agent's is replaced, as it would not be one at its next name either.

    Raises:
        IdentityError: the file cannot be read or written.
    """
    path = state_path / NEXT_FILE
    if _is_of_agent(path):
        existing = read_credential(state_path, NEXT_FILE)
        if existing is not None:
            return existing
    secret = make_secret()
    try:
        # Exclusive, without following a link, and for its owner alone.
        descriptor, name = tempfile.mkstemp(dir=state_path, prefix=f".{NEXT_FILE}-")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                _give_to_agent(file.fileno(), state_path)
                file.write(secret + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
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


def find_agent_owner(state_path: Path) -> os.stat_result:
    """Return the status of the file that belongs to the agent's user: its id, or the directory.

    Raises:
        OSError: there is neither.
    """
    try:
        found = (state_path / COMPUTE_ID_FILE).lstat()
    except FileNotFoundError:
        return state_path.stat()
    return found if stat.S_ISREG(found.st_mode) else state_path.stat()


def _is_of_agent(path: Path) -> bool:
    """Return whether a path is a file, and no link, of the agent's user."""
    try:
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_uid == find_agent_owner(path.parent).st_uid
    except OSError:
        return False


def _give_to_agent(descriptor: int, state_path: Path) -> None:
    if os.geteuid() == 0:
        owner = find_agent_owner(state_path)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
