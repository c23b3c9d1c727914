"""What keeps the users of services from running this installation, or from reading its files."""

import os
import pwd
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import nodetracker
from nodetracker.conductor.credential_file import find_agent_owner
from nodetracker.views.readiness import Barrier

SERVICE_USER = "nodetracker"
"""The user of the units in ``etc/systemd``."""

_RUN_SECONDS = 20.0


def find_closed_file(path: str, state_path: Path) -> str | None:
    """Return that the agent's user cannot read a file that root can, None if it can.

    Also None where it cannot be known: without a state directory, or for others than root.
    """
    if os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwuid(find_agent_owner(state_path).st_uid)
    except (OSError, KeyError):
        return None
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    if _run_as(account, groups, ("/usr/bin/test", "-r", path)) is None:
        return None
    return f"user {account.pw_name} cannot read it"


def find_barrier(
    name: str = SERVICE_USER,
    command: Sequence[str] = (sys.executable, "-c", "import nodetracker"),
    files: Collection[str] = (sys.executable, os.__file__, nodetracker.__file__),
) -> Barrier | None:
    """Return what keeps a user from running this installation, None without an obstacle.

    Also None where it cannot be known: without that user, or for others than root.

    Args:
        command: is run as that user.
        files: what the command needs; the barrier is a directory above one of them.
    """
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return None
    if os.geteuid() != 0:
        return None
    groups = os.getgrouplist(name, account.pw_gid)
    problem = _run_as(account, groups, command)
    if problem is None:
        return None
    closed = _find_closed(files, account.pw_uid, groups)
    return Barrier(name, command[0], closed, problem)


def _run_as(
    account: pwd.struct_passwd, groups: Sequence[int], command: Sequence[str]
) -> str | None:
    """Run a command as a user; return why it failed, None if it did not or is not known."""
    try:
        done = subprocess.run(  # noqa: S603 - this Python
            command,
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_RUN_SECONDS,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=groups,
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {_RUN_SECONDS:g} s"
    except OSError as error:
        # Without a filename it was the change of the user that failed, as in some containers.
        return None if error.filename is None else error.strerror
    if done.returncode == 0:
        return None
    lines = done.stderr.split("\n")
    return next((line for line in reversed(lines) if line.strip()), f"exits with {done.returncode}")


def _find_closed(files: Iterable[str], uid: int, groups: Collection[int]) -> str | None:
    """Return the first directory above the files that a user may not enter by its mode."""
    for file in files:
        for path in (Path(file), Path(file).resolve()):
            for directory in reversed(path.parents):
                if not _may_enter(directory.stat(), uid, groups):
                    return str(directory)
    return None


def _may_enter(status: os.stat_result, uid: int, groups: Collection[int]) -> bool:
    if status.st_uid == uid:
        return bool(status.st_mode & 0o100)
    return bool(status.st_mode & (0o010 if status.st_gid in groups else 0o001))
