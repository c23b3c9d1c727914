"""The plugin by which Docker asks the agent before a container starts.

Docker refuses all requests, and does not start, while a plugin that its configuration names does
not answer. So the plugin answers before the configuration names it, and stays until Docker has
given it up.
"""

import json
import re
import socket as sockets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    replace_text,
    run_program,
    write_files,
    write_text,
)
from nodetracker.model.errors import RefusedError

_NAME = "nodetracker"
_SOCKET_UNIT, _SERVICE_UNIT = "nodetracker-docker.socket", "nodetracker-docker.service"
_PLUGINS = "authorization-plugins"
_KEY = f'"{_PLUGINS}": ["{_NAME}"]'
_TIMEOUT_SECONDS = 5.0
_GIVEN_UP_SECONDS = 2.0  # a reload takes effect after its command has ended


class DockerPlugin:
    """The plugin of this machine's ``docker.service``.

    Args:
        root: of the filesystem.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        units = root / "etc/systemd/system"
        self._socket, self._service = units / _SOCKET_UNIT, units / _SERVICE_UNIT
        self._program = root / LIBRARY / "docker_plugin.py"
        self._drop_in = name_drop_in(root, "docker")
        self._listener = root / "run/docker/plugins/nodetracker.sock"
        self._engine = root / "run/docker.sock"

    @property
    def when_unavailable(self) -> str | None:
        """What is installed for containers while the agent does not answer; None without it."""
        text = read_own(self._service) or ""
        match = re.search(r"^ExecStart=.* (allow|refuse)$", text, re.MULTILINE)
        return match and match[1]

    @property
    def config(self) -> Path:
        """Docker's configuration file, as it was at the installation."""
        (path,) = self._read_record("Configuration") or ["etc/docker/daemon.json"]
        return self._root / path

    def list_files(
        self, socket: Path, when_unavailable: str | None = None, config: Path | None = None
    ) -> list[OwnFile]:
        """Return the files in the order in which they are installed.

        Args:
            socket: where the agent answers.
            when_unavailable: "allow" or "refuse"; None = as it is installed.
            config: Docker's configuration file; None = as it is installed.
        """
        config = config or self.config
        paths = [self._program, self._drop_in, self._service, self._socket, config]
        missing = [*([] if config.exists() else [config]), *list_missing(paths)]
        made = dict.fromkeys([*map(str, missing), *self._read_record("Made")])
        service = read_program(_SERVICE_UNIT)
        for name, value in (
            ("MADE", " ".join(made)),
            ("CONFIGURATION", str(config)),
            ("PROGRAM", str(self._program)),
            ("SOCKET", str(socket)),
            ("WHEN_UNAVAILABLE", when_unavailable or self.when_unavailable or "allow"),
        ):
            service = service.replace(f"@{name}@", value)
        order = f"[Unit]\nWants={_SOCKET_UNIT}\nAfter={_SOCKET_UNIT}\n"
        return [
            OwnFile(self._program, read_program("docker_plugin.py")),
            OwnFile(self._drop_in, render_drop_in(self._program, socket) + order),
            OwnFile(self._service, service),
            OwnFile(self._socket, read_program(_SOCKET_UNIT)),
        ]

    def list_states(self, socket: Path) -> list[tuple[Path, str]]:
        """Return the path and state of each file, and whether Docker's configuration names it."""
        try:
            plugins = read_plugins(self.config, read_config(self.config))
            state = "current" if _NAME in plugins else "absent"
        except RefusedError:
            state = "unreadable"
        return [
            *((file.path, file.state) for file in self.list_files(socket)),
            (self.config, state),
        ]

    def install(self, socket: Path, when_unavailable: str) -> tuple[list[Path], list[str]]:
        """Write what differs, start the plugin's socket, and then name it in the configuration.

        Returns:
            The paths that were written, and what is left to the operator, as commands.

        Raises:
            RefusedError: Docker does not run by systemd, has plugins of others, or refuses the
                configuration; another's file is in the way; or the plugin does not answer.
        """
        if not list_units(self._root, ["docker"]):
            raise RefusedError("docker.service does not exist: Docker is not installed here")
        command = self._read_command()
        config = self._find_config(command)
        text = read_config(config)
        named = add_plugin(config, text)
        is_new = self.when_unavailable is None
        written = write_files(self.list_files(socket, when_unavailable, config))
        if written:
            run_program("systemctl", "daemon-reload")
        run_program("systemctl", "enable", "--now", _SOCKET_UNIT)
        self._check_answer()
        if named != text:
            _write_config(command[0], config, named)
            return [*written, config], ["systemctl reload docker"]
        has_changed = {self._program, self._service} & set(written)
        return written, [f"systemctl restart {_SERVICE_UNIT}"] if has_changed and not is_new else []

    def remove(self) -> tuple[list[Path], list[str]]:
        """Take the plugin out of the configuration, and remove it once Docker has given it up.

        Returns:
            As `install`; steps are left only where Docker still has the plugin.

        Raises:
            RefusedError: the configuration has plugins of others, too.
        """
        if read_own(self._service) is None:
            return [], []
        made = [Path(name) for name in self._read_record("Made")]
        removed = self._remove_key(made)
        if self._is_in_use():
            again = "nodetracker-manage admission remove --driver docker"
            return removed, ["systemctl reload docker", again]
        run_program("systemctl", "disable", "--now", _SOCKET_UNIT, _SERVICE_UNIT)
        paths = [self._program, self._drop_in, self._socket, self._service]
        removed += remove_files(paths, [*made, self._root / LIBRARY])
        run_program("systemctl", "daemon-reload")
        return removed, []

    def _remove_key(self, made: Sequence[Path]) -> list[Path]:
        config = self.config
        text = read_config(config)
        rest = remove_plugin(config, text)
        if rest == text:
            return []
        if config in made and rest.strip() == "{}":
            config.unlink()
        else:
            replace_text(config.resolve(), rest)
        return [config]

    def _read_command(self) -> list[str]:
        """Return the command line of the dockerd that runs.

        Raises:
            RefusedError: none runs.
        """
        pid = self._read_pid()
        if pid == "0":
            raise RefusedError("docker.service does not run; start it first")
        line = (self._root / "proc" / pid / "cmdline").read_text()
        return line.rstrip("\0").split("\0")

    def _read_pid(self) -> str:
        return run_program(
            "systemctl", "show", "--property=MainPID", "--value", "docker.service"
        ).strip()

    def _find_config(self, command: Sequence[str]) -> Path:
        path = "etc/docker/daemon.json"
        for word, following in zip(command, [*command[1:], ""], strict=True):
            name, separator, value = word.partition("=")
            if name == "--authorization-plugin":
                raise RefusedError(
                    f"dockerd has the flag {word}: Docker takes no plugins from {path} as well; "
                    f"add --authorization-plugin={_NAME} by hand, or move all to {path}"
                )
            if name == "--config-file":
                path = (value if separator else following).removeprefix(f"{self._root}/")
        return self._root / path.removeprefix("/")

    def _check_answer(self) -> None:
        try:
            answer = _call(self._listener, "POST /Plugin.Activate")
        except (OSError, ValueError) as error:
            raise RefusedError(
                f"{self._listener}: the plugin does not answer ({error}); Docker's configuration "
                f"was not changed. See journalctl -u {_SERVICE_UNIT}"
            ) from None
        if answer != {"Implements": ["authz"]}:
            raise RefusedError(f"{self._listener}: another's plugin answers")

    def _is_in_use(self) -> bool:
        """Return whether a dockerd runs that has the plugin, or does not answer."""
        deadline = time.monotonic() + _GIVEN_UP_SECONDS
        while self._read_pid() != "0":  # otherwise a connection would start it
            before = self._count_requests()
            try:
                is_answered = "ApiVersion" in _call(self._engine, "GET /version")
            except (OSError, ValueError, TypeError):
                is_answered = False
            # What it reports in /info is what it was started with (20.10).
            if is_answered and self._count_requests() == before:
                return False
            if not is_answered or time.monotonic() > deadline:
                return True
            time.sleep(0.1)
        return False

    def _count_requests(self) -> int | None:
        """Return the number of requests that Docker has asked about; None without an answer."""
        try:
            return int(_call(self._listener, "POST /nodetracker.Requests")["Requests"])
        except (OSError, ValueError, LookupError):
            return None

    def _read_record(self, name: str) -> list[str]:
        match = re.search(rf"^# {name}: (.+)$", read_own(self._service) or "", re.MULTILINE)
        return match[1].split() if match else []


def read_config(path: Path) -> str:
    """Return the text of a configuration of Docker, "{}" if it does not exist or is empty.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        text = path.read_text() if path.exists() else ""
    except (OSError, UnicodeError) as error:
        raise RefusedError(f"{path} cannot be read: {error}") from None
    return text if text.strip() else "{}\n"


def read_plugins(path: Path, text: str) -> list[str]:
    """Return the authorization plugins that a configuration of Docker names.

    Raises:
        RefusedError: it is invalid.
    """
    try:
        values = json.loads(text)
        return list(values.get(_PLUGINS) or ())
    except (ValueError, AttributeError, TypeError) as error:
        raise RefusedError(f"{path} is not a configuration of Docker: {error}") from None


def add_plugin(path: Path, text: str) -> str:
    r"""Return a configuration of Docker that names the plugin; the rest is as it is written.

    Raises:
        RefusedError: it is invalid, or names plugins of others.

    >>> add_plugin(Path("daemon.json"), '{"debug": true}')
    '{\n  "authorization-plugins": ["nodetracker"],"debug": true}'
    """
    plugins = read_plugins(path, text)
    if _NAME in plugins:
        return text
    values = json.loads(text)
    if _PLUGINS in values:
        raise RefusedError(
            f'{path}: {_PLUGINS} is not nodetracker\'s; add "{_NAME}" by hand, and install again'
        )
    return text.replace("{", f"{{\n  {_KEY}" + ("," if values else "\n"), 1)


def remove_plugin(path: Path, text: str) -> str:
    """Return the configuration as it was before `add_plugin`, with what was changed since.

    Raises:
        RefusedError: it is invalid, or names plugins of others, too.
    """
    plugins = read_plugins(path, text)
    if _NAME not in plugins:
        return text
    if plugins != [_NAME]:
        raise RefusedError(f'{path}: take "{_NAME}" out of {_PLUGINS} by hand, reload, and repeat')
    rest = json.loads(text)
    del rest[_PLUGINS]
    for written in (f"\n  {_KEY},", f"\n  {_KEY}\n"):
        if text.startswith(f"{{{written}", text.find("{")):
            return text.replace(written, "", 1)
    return json.dumps(rest, indent=2) + "\n"  # somebody has formatted it


def _write_config(dockerd: str, config: Path, text: str) -> None:
    """Replace the configuration at once, after dockerd has checked it.

    Raises:
        RefusedError: it is refused.
    """
    path = config.resolve()
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.nodetracker")
    try:
        write_text(new, text, 0o600)
        done = subprocess.run(  # noqa: S603 - the program that runs
            [dockerd, "--validate", f"--config-file={new}"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    finally:
        new.unlink(missing_ok=True)
    # Docker before 23.0 cannot check it.
    if done.returncode != 0 and "unknown flag: --validate" not in done.stderr:
        raise RefusedError(f"{path} was not changed: {done.stderr.strip()}")
    replace_text(path, text)


def _call(path: Path, line: str) -> Any:
    """Return the JSON that a server on a Unix socket answers.

    Raises:
        OSError: it does not answer.
        ValueError: it answers something else.
    """
    with sockets.socket(sockets.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(str(path))
        connection.sendall(f"{line} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])
