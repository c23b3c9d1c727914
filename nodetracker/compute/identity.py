"""Who this agent is: the uuid it keeps for life, and this one run of it.

Everything about the run is read from the process's own ``/proc``, wherever
the host's files are configured to be.
"""

import logging
import os
import uuid
from pathlib import Path

from nodetracker.errors import IdentityError
from nodetracker.model.service import Incarnation

LOG = logging.getLogger(__name__)

COMPUTE_ID_FILE = "compute_id"
UNUSABLE_FILE = "compute_id.unusable"
"""Where a file goes that held no uuid."""

_LARGEST_FILE = 64
_OWN_PROC = Path("/proc")
_START_TIME_FIELD = 19  # of the fields after the command, proc(5) field 22


def ensure_compute_id(state_path: Path) -> str:
    """Return the agent's uuid, making its file at the first start.

    A file that holds no uuid, as a crash or a full disk leaves it, is put aside
    and made anew: rows keep their uuids, and the start decision sees to it that
    no live agent loses its host to the new one.

    Raises:
        IdentityError: the file cannot be read, or there is none and it cannot
            be made; the message names it and says what to do.
    """
    path = state_path / COMPUTE_ID_FILE
    try:
        text = _read_start(path)
    except FileNotFoundError:
        return _make_compute_id(path)
    except OSError as error:
        raise IdentityError(
            f"{path} cannot be read: {error.strerror} ([DEFAULT] state_path names its directory)"
        ) from error
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError:
        pass
    _put_aside(path)
    return _make_compute_id(path)


def read_compute_id(state_path: Path) -> str | None:
    """Return the agent's uuid, None when there is no usable one; nothing is made."""
    try:
        return str(uuid.UUID(_read_start(state_path / COMPUTE_ID_FILE).strip()))
    except (OSError, ValueError):
        return None


def find_state_problem(state_path: Path) -> str | None:
    """Say what is wrong with the state directory, None when nothing is."""
    aside = state_path / UNUSABLE_FILE
    try:
        if aside.exists():
            return f"the identity was lost and made anew; look at {aside}, then delete it"
        if not os.access(state_path, os.W_OK):
            return f"{state_path} cannot be written; a lost identity could not be made again"
        free = os.statvfs(state_path)
    except OSError as error:
        return f"{state_path} cannot be read: {error.strerror}"
    if free.f_blocks and not free.f_bavail:
        return f"the filesystem of {state_path} is full"
    return None


def read_incarnation(compute_id: str, report_interval: int) -> Incarnation:
    """Describe this very process."""
    pid = os.getpid()
    return Incarnation(
        agent_id=compute_id,
        boot_id=_read_own_text("sys/kernel/random/boot_id").strip(),
        pid_ns=_read_pid_namespace(),
        pid=pid,
        process_started_at=_read_start_time(pid),
        report_interval=report_interval,
    )


def is_same_machine(recorded: Incarnation, mine: Incarnation) -> bool:
    """Tell whether a recorded process can be looked up from here: same boot, same namespace."""
    return bool(mine.boot_id and mine.pid_ns) and (recorded.boot_id, recorded.pid_ns) == (
        mine.boot_id,
        mine.pid_ns,
    )


def is_process_alive(recorded: Incarnation) -> bool:
    """Tell whether a recorded process of this boot and namespace still runs.

    A process id that was given to another process since has another start time.
    """
    return 0 < recorded.process_started_at == _read_start_time(recorded.pid)


def _put_aside(path: Path) -> None:
    aside = path.with_name(UNUSABLE_FILE)
    try:
        path.replace(aside)
    except OSError as error:
        raise IdentityError(
            f"{path} holds no uuid and cannot be made anew: {error.strerror}; put back this "
            "host's own, or delete the file to make this a new agent"
        ) from error
    LOG.error("%s held no uuid; it is put aside as %s and made anew", path, aside.name)


def _make_compute_id(path: Path) -> str:
    compute_id = str(uuid.uuid4())
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(compute_id + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        for link in (path.parent, path):
            if link.is_symlink() and not link.exists():
                raise IdentityError(
                    f"{link} is a link to what is not there; if its filesystem is not mounted, "
                    "mount it and start again"
                ) from None
        return ensure_compute_id(path.parent)
    except OSError as error:
        _remove_partial(path)
        raise IdentityError(
            f"{path} is not there and cannot be made: {error.strerror}; "
            "[DEFAULT] state_path must be a directory that this user can write"
        ) from error
    LOG.info("This is a new agent; its identity %s stands in %s", compute_id, path)
    return compute_id


def _remove_partial(path: Path) -> None:
    """Take away a file that was made but not filled, as on a full disk."""
    try:
        if path.stat().st_size == 0:
            path.unlink()
    except OSError:
        LOG.debug("No partial %s to remove", path)


def _read_start(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LARGEST_FILE).decode("ascii", errors="replace")


def _read_own_text(relative: str) -> str:
    try:
        return (_OWN_PROC / relative).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _read_pid_namespace() -> int:
    try:
        return (_OWN_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _read_start_time(pid: int) -> int:
    # The command may hold blanks and parentheses; the fields follow the last one.
    _, _, fields = _read_own_text(f"{pid}/stat").rpartition(")")
    parts = fields.split()
    if len(parts) <= _START_TIME_FIELD or parts[0] in ("Z", "X"):
        return 0
    return int(parts[_START_TIME_FIELD])
