"""The hook by which libvirt asks the agent before a domain starts."""

import re
import shlex
import shutil
from pathlib import Path

from nodetracker.hooks.files import (
    LIBRARY,
    OwnFile,
    list_missing,
    list_units,
    name_drop_in,
    read_own,
    read_program,
    remove_files,
    render_drop_in,
    run_program,
    write_files,
)
from nodetracker.model.errors import RefusedError

SERVICES = ("libvirtd", "virtqemud")
_OLDEST = (6, 5)  # older ones run no scripts of qemu.d


class LibvirtHook:
    """The hook of this machine's libvirt.

    Args:
        root: of the filesystem.
        python: the system's.
    """

    def __init__(self, root: Path, python: str = "/usr/bin/python3") -> None:
        self._root = root
        self._python = python
        self._program = root / LIBRARY / "ask.py"
        self._hook = root / "etc/libvirt/hooks/qemu.d/nodetracker"

    @property
    def when_unavailable(self) -> str | None:
        """What is installed for guests while the agent does not answer; None without a hook."""
        match = re.search(r"^when_unavailable=(\w+)$", read_own(self._hook) or "", re.MULTILINE)
        return match and match[1]

    def list_files(self, socket: Path, when_unavailable: str | None = None) -> list[OwnFile]:
        """Return the files in the order in which they are installed, the hook last.

        Args:
            socket: where the agent answers.
            when_unavailable: "allow" or "refuse"; None = as it is installed.
        """
        installed = read_own(self._hook) or ""
        chosen = when_unavailable or self.when_unavailable or "allow"
        files = [
            OwnFile(self._program, read_program("ask.py")),
            *(
                OwnFile(name_drop_in(self._root, unit), render_drop_in(self._program, socket))
                for unit in list_units(self._root, SERVICES)
            ),
        ]
        paths = [*(file.path for file in files), self._hook]
        made = list(dict.fromkeys([*list_missing(paths), *_read_directories(installed)]))
        text = read_program("libvirt-hook.sh")
        for name, value in (
            ("DIRECTORIES", " ".join(map(str, made))),
            ("WHEN_UNAVAILABLE", chosen),
            ("SOCKET", shlex.quote(str(socket))),
            ("PROGRAM", shlex.quote(str(self._program))),
            ("PYTHON", shlex.quote(self._python)),
        ):
            text = text.replace(f"@{name}@", value)
        return [*files, OwnFile(self._hook, text, 0o755)]

    def list_states(self, socket: Path) -> list[tuple[Path, str]]:
        """Return the path and state of each file."""
        return [(file.path, file.state) for file in self.list_files(socket)]

    def install(self, socket: Path, when_unavailable: str) -> tuple[list[Path], list[str]]:
        """Write what differs.

        Returns:
            The paths that were written, and what is left to the operator, as commands.

        Raises:
            RefusedError: libvirt is not installed or too old, or another's file is in the way.
        """
        directory = self._root / "etc/libvirt"
        if not directory.is_dir():
            raise RefusedError(f"{directory} does not exist: libvirt is not installed here")
        self._refuse_old()
        is_new = self.when_unavailable is None
        written = write_files(self.list_files(socket, when_unavailable))
        return written, self._list_steps(written, is_new)

    def remove(self) -> tuple[list[Path], list[str]]:
        """Remove the files, and the directories that `install` made; returns as `install`."""
        directories = [*_read_directories(read_own(self._hook) or ""), self._root / LIBRARY]
        drop_ins = [name_drop_in(self._root, unit) for unit in SERVICES]
        removed = remove_files([self._program, *drop_ins, self._hook], directories)
        return removed, self._list_steps(removed, is_new=False)

    def _refuse_old(self) -> None:
        path = ":".join(str(self._root / place) for place in ("usr/sbin", "usr/local/sbin"))
        daemon = next(filter(None, (shutil.which(name, path=path) for name in SERVICES)), None)
        text = run_program(daemon, "--version").strip() if daemon else ""
        version = re.search(r"\b(\d+)\.(\d+)(\.\d+)*$", text)
        if version and (int(version[1]), int(version[2])) < _OLDEST:
            raise RefusedError(
                f"libvirt {version[0]} does not run the scripts of {self._hook.parent}: "
                "6.5 or newer is needed"
            )

    def _list_steps(self, changed: list[Path], is_new: bool) -> list[str]:
        units = list_units(self._root, SERVICES)
        steps = []
        if any(path.suffix == ".conf" for path in changed):
            steps.append("systemctl daemon-reload")
        if is_new:  # it looks for hooks when it starts
            steps.append(f"systemctl try-restart {' '.join(units or SERVICES[:1])}")
        return steps


def _read_directories(hook: str) -> list[Path]:
    match = re.search(r"^# Directories made: (.+)$", hook, re.MULTILINE)
    return [Path(name) for name in match[1].split()] if match else []
