"""Identify an agent by the uuid in its state directory, and one run of it by its process.

The process is always looked up in ``/proc``, whatever ``[host] procfs`` is.
"""

import logging
import os
import uuid
from pathlib import Path

from nodetracker.model.errors import IdentityError
from nodetracker.model.service import COMPUTE_ID_FILE, Incarnation
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.process.state_file import read_state_file

LOG = logging.getLogger(__name__)

UNUSABLE_FILE = "compute_id.unusable"
"""Name to which a file without a valid UUID is renamed."""

_MAX_FILE_BYTES = 64
_OWN_PROC = Path("/proc")
_START_TIME_FIELD = 19  # of the fields after the command, proc(5) field 22


def ensure_compute_id(state_path: Path) -> str:
    """Return the agent's uuid; create its file at the first start.

    A file without a valid UUID, such as a crash or a full disk leaves, is renamed
    and a new one created: rows keep their uuids, and `Takeover` does not let the
    new agent take the host of one that is alive.

    Raises:
        IdentityError: the file cannot be read or created; the message names it
            and the remedy.
    """
    path = state_path / COMPUTE_ID_FILE
    try:
        text = _read_file(path)
    except FileNotFoundError:
        return _create_compute_id(path)
    except OSError as error:
        raise IdentityError(
            f"{path} cannot be read: {error.strerror} ([DEFAULT] state_path names its directory)"
        ) from error
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError:
        pass
    _rename_unusable(path)
    return _create_compute_id(path)


def read_compute_id(state_path: Path) -> str | None:
    """Return the agent's uuid, None without a valid one; no file is created."""
    try:
        return str(uuid.UUID(_read_file(state_path / COMPUTE_ID_FILE).strip()))
    except (OSError, ValueError):
        return None


def find_state_problem(state_path: Path) -> str | None:
    """Return the problem of the state directory, None without one."""
    unusable = state_path / UNUSABLE_FILE
    try:
        if unusable.exists():
            return f"the agent's uuid was lost and replaced; inspect {unusable}, then delete it"
        if not os.access(state_path, os.W_OK):
            return f"{state_path} is not writable; a lost uuid could not be replaced"
        free = os.statvfs(state_path)
    except OSError as error:
        return f"{state_path} cannot be read: {error.strerror}"
    if free.f_blocks and not free.f_bavail:
        return f"the filesystem of {state_path} is full"
    return None


def list_state_warnings(state_path: Path) -> list[HostWarning]:
    """Return the warning of the state directory's problem, if it has one."""
    problem = find_state_problem(state_path)
    if problem is None:
        return []
    return [HostWarning(WarningKind.STATE_PATH, WHOLE_HOST, NO_ITEM, problem)]


def read_incarnation(compute_id: str, report_interval: int) -> Incarnation:
    """Return the identity of this process as a run of the agent."""
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
    """Return whether a recorded process can be looked up from here: same boot, same namespace."""
    return bool(mine.boot_id and mine.pid_ns) and (recorded.boot_id, recorded.pid_ns) == (
        mine.boot_id,
        mine.pid_ns,
    )


def is_process_alive(recorded: Incarnation) -> bool:
    """Return whether a recorded process of this boot and namespace still runs.

    A process id that another process has now has another start time.
    """
    return 0 < recorded.process_started_at == _read_start_time(recorded.pid)


def _rename_unusable(path: Path) -> None:
    unusable = path.with_name(UNUSABLE_FILE)
    try:
        path.replace(unusable)
    except OSError as error:
        raise IdentityError(
            f"{path} does not contain a valid UUID and cannot be replaced: {error.strerror}; "
            "restore this host's own file, or delete it to make this a new agent"
        ) from error
    LOG.error(
        "%s does not contain a valid UUID; renamed it to %s and created a new one",
        path,
        unusable.name,
    )


def _create_compute_id(path: Path) -> str:
    compute_id = str(uuid.uuid4())
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            _give_to_user(file.fileno(), path.parent)
            file.write(compute_id + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        for link in (path.parent, path):
            if link.is_symlink() and not link.exists():
                raise IdentityError(
                    f"{link} is a dangling link; if the target's filesystem is not mounted, "
                    "mount it and start again"
                ) from None
        return ensure_compute_id(path.parent)
    except OSError as error:
        _remove_partial(path)
        raise IdentityError(
            f"{path} does not exist and cannot be created: {error.strerror}; "
            "[DEFAULT] state_path must be a directory that this user can write"
        ) from error
    LOG.info("New agent: its uuid %s is stored in %s", compute_id, path)
    return compute_id


def _give_to_user(descriptor: int, state_path: Path) -> None:
    """Give a file that root writes, as by ``--once``, to the user of the state directory."""
    if os.geteuid() == 0:
        owner = state_path.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _remove_partial(path: Path) -> None:
    """Remove a file that was created but not written, as on a full disk."""
    try:
        if path.stat().st_size == 0:
            path.unlink()
    except OSError:
        LOG.debug("%s was not created; nothing to remove", path)


def _read_file(path: Path) -> str:
    return read_state_file(path, _MAX_FILE_BYTES).decode("ascii", errors="replace")


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
    # The command may contain blanks and parentheses; the fields follow the last one.
    _, _, fields = _read_own_text(f"{pid}/stat").rpartition(")")
    parts = fields.split()
    if len(parts) <= _START_TIME_FIELD or parts[0] in ("Z", "X"):
        return 0
    return int(parts[_START_TIME_FIELD])
