"""Install and remove files of ours beside those of others, whose files are never touched."""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from nodetracker.model.errors import RefusedError

MARKER = "# nodetracker-admission"
"""Line by which a file is recognised as ours; it is among the first three."""

LIBRARY = "usr/local/lib/nodetracker"
"""Where the programs are copied to. AppArmor's profile of libvirtd runs nothing below /opt."""

_UNIT_DIRECTORIES = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


@dataclass(frozen=True)
class OwnFile:
    """A file as it is to be installed."""

    path: Path
    text: str
    mode: int = 0o644

    @property
    def state(self) -> str:
        """Compare it with what is installed.

        Returns:
            "absent", "current", "outdated", or "foreign" if the path is not a file of ours.
        """
        found = read_own(self.path)
        if found is None:
            return "foreign" if os.path.lexists(self.path) else "absent"
        is_same = (found, self.path.stat().st_mode & 0o777) == (self.text, self.mode)
        return "current" if is_same else "outdated"


def read_own(path: Path) -> str | None:
    """Return the text of a file of ours, None if it does not exist or is another's."""
    if path.is_symlink() or not path.is_file():
        return None
    text = path.read_text(errors="replace")
    return text if MARKER in text.splitlines()[:3] else None


def check_own(wanted: Iterable[OwnFile]) -> None:
    """Check that no path is another's.

    Raises:
        RefusedError: one is; it names the path.
    """
    for file in wanted:
        if file.state == "foreign":
            raise RefusedError(f"{file.path} was not installed by nodetracker; it is kept")


def write_files(wanted: Iterable[OwnFile]) -> list[Path]:
    """Write those that differ, in order and each at once; returns their paths.

    Raises:
        RefusedError: a path is another's; nothing is written.
    """
    wanted = tuple(wanted)
    check_own(wanted)
    changed = [file for file in wanted if file.state != "current"]
    for file in changed:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(file.path, file.text, file.mode)
    return [file.path for file in changed]


def replace_text(path: Path, text: str) -> None:
    """Replace the text of a file that may be another's, whose owner and mode stay.

    Raises:
        RefusedError: it cannot be replaced.
    """
    try:
        found = path.stat() if path.exists() else None
        owner = (found.st_uid, found.st_gid) if found else (-1, -1)
        write_text(path, text, found.st_mode & 0o777 if found else 0o644, owner)
    except OSError as error:
        raise RefusedError(f"{path} was not changed: {error.strerror}") from None


def write_text(path: Path, text: str, mode: int, owner: tuple[int, int] = (-1, -1)) -> None:
    """Replace a file at once.

    Args:
        owner: user and group, -1 = one's own.
    """
    descriptor, name = tempfile.mkstemp(prefix=".nodetracker-", dir=path.parent)
    try:
        with open(descriptor, "w") as stream:  # noqa: PTH123 - of a descriptor
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
            os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_files(paths: Iterable[Path], directories: Iterable[Path]) -> list[Path]:
    """Remove files of ours, in order, and then the directories that are empty.

    Returns:
        The paths that were removed.
    """
    removed = []
    for path in paths:
        if read_own(path) is not None:
            path.unlink()
            removed.append(path)
    for path in directories:
        try:
            path.rmdir()
        except OSError:  # it does not exist, or others have files in it
            continue
        removed.append(path)
    return removed


def list_missing(paths: Iterable[Path]) -> list[Path]:
    """Return the directories that do not exist for files at these paths, the innermost first."""
    missing = {parent for path in paths for parent in path.parents if not os.path.lexists(parent)}
    return sorted(missing, key=lambda path: (-len(path.parts), path))


def list_units(root: Path, names: Sequence[str]) -> list[str]:
    """Return those of systemd's services that are installed."""
    return [
        name
        for name in names
        if any((root / place / f"{name}.service").exists() for place in _UNIT_DIRECTORIES)
    ]


def name_drop_in(root: Path, unit: str) -> Path:
    """Return the path of our drop-in for a service."""
    return root / "etc/systemd/system" / f"{unit}.service.d/nodetracker-admission.conf"


def render_drop_in(program: Path, socket: Path) -> str:
    """Return the drop-in by which a service waits, 20 s at most, until the agent answers."""
    # In the foreground timeout ends after what it has killed, so that systemd finds nothing left.
    wait = (
        f'/usr/bin/timeout --foreground -s KILL 20 /usr/bin/python3 -I -S {program} "{socket}" wait'
    )
    return f"""\
{MARKER}
# Guests that start with the host are asked about, too: the agent is waited for, 20 s at most.
[Service]
ExecStartPre=-{wait}
"""


def read_program(name: str) -> str:
    """Return the text of a file of this package."""
    return files(__package__).joinpath(name).read_text()


def run_program(*command: str) -> str:
    """Return what a program prints.

    Raises:
        RefusedError: it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RefusedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
