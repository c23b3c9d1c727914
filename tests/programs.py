"""Run the installed programs as a user would, each with its own configuration."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path, PosixPath
from typing import IO, Any

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from tests.fork_server import ForkedProcess, get_server
from tests.functional.servers.process import find_free_port

BIN = Path(sys.executable).parent


class WholeFile(PosixPath):
    """A file that is replaced whole, as a program may be reading it."""

    def write_text(self, data: str, *arguments: Any, **named: Any) -> int:
        new = Path(f"{self}.new")
        written = new.write_text(data, *arguments, **named)
        new.replace(self)
        return written


class Programs:
    """The programs with one configuration file and state directory.

    Args:
        down_after: service_down_time; short only where a test waits for a host to be down, as a
            busy machine may delay heartbeats for seconds.
        report_interval: seconds between heartbeats, and for one by a conductor; one that takes
            longer there is an outage.
    """

    def __init__(
        self,
        directory: Path,
        connection: str | None = None,
        host: str = "host-1",
        down_after: int = 60,
        report_interval: int = 1,
        **options,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.host = host
        self.bin = BIN  # where its release is installed
        self.down_after = down_after
        self.report_interval = report_interval
        self.mount_namespace = ""  # file of the namespace in which all programs run
        self.inventory = WholeFile(directory / "inventory.yaml")
        self.path = directory / "nodetracker.conf"
        self.connection = connection or f"sqlite:///{directory}/db.sqlite"
        self.configure(**options)

    def configure(
        self, extra: str = "", driver: str = "fake", metrics_port: int | None = None, **options
    ) -> None:
        """Write the configuration file; options are those of [compute].

        Metrics are served only if they are given a port, so that agents side by side do not meet.
        """
        compute = "\n".join(f"{name} = {value}" for name, value in options.items())
        self.path.write_text(
            f"[DEFAULT]\nhost = {self.host}\nreport_interval = {self.report_interval}\n"
            f"service_down_time = {self.down_after}\n"
            f"state_path = {self.directory}/state\n{extra}\n"
            + ("" if "[api]" in extra else f"[api]\nport = {find_free_port()}\n")
            + f"[compute]\ncompute_driver = {driver}\n{compute}\n"
            f"[fake]\ninventory_file = {self.inventory}\n"
            f"[database]\nconnection = {self.connection}\n"
            "[metrics]\n" + (f"port = {metrics_port}\n" if metrics_port else "enabled = false\n")
        )

    def make_schema(self) -> None:
        """Give the database its schema; an SQLite file becomes a copy of one that has it."""
        backend, _, path = self.connection.partition(":///")
        if backend == "sqlite":
            Path(path).write_bytes(_read_migrated_file())
        else:
            _migrate(self.connection)

    def run(self, program: str, *arguments: str, timeout: float = 120, **env: str):
        """Run a program to its end."""
        command = self._command(program, arguments)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = _start(command, output, errors, env, True, self.mount_namespace)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                command, code, output.read().decode(), errors.read().decode()
            )

    def manage(self, *arguments: str):
        """Run nodetracker-manage to its end."""
        return self.run("nodetracker-manage", *arguments)

    def ask(self, *arguments: str):
        """Return what nodetracker-manage prints as JSON."""
        done = self.manage(*arguments, "-f", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(
        self,
        program: str = "nodetracker-compute",
        *arguments: str,
        before=(),
        is_forked: bool = True,
        **env: str,
    ) -> "Running":
        """Start a program in the background.

        Args:
            before: what starts it, e.g. unshare and its options.
            is_forked: False starts what is installed, for those who measure the process.
        """
        command = [*before, *self._command(program, arguments)]
        is_forked = is_forked and not before
        return Running(command, self.directory, is_forked, self.mount_namespace, **env)

    def _command(self, program: str, arguments: Sequence[str]) -> list:
        return [str(self.bin / program), f"--config-file={self.path}", *arguments]


class Running:
    """A program in the background, its output in a file."""

    def __init__(
        self,
        command: list,
        directory: Path,
        is_forked: bool = False,
        mount_namespace: str = "",
        **env: str,
    ) -> None:
        self.log = directory / f"output-{time.monotonic_ns()}"
        with self.log.open("wb") as output:
            self.process = _start(command, output, output, env, is_forked, mount_namespace)

    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, timeout: float = 60) -> None:
        """Wait until the output has a text."""
        wait_until(lambda: text in self.output() or self.process.poll() is not None, timeout)
        assert text in self.output(), self.output()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *details: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _start(
    command: list,
    output: IO[bytes],
    errors: IO[bytes],
    env: dict[str, str],
    is_forked: bool,
    mount_namespace: str,
) -> "subprocess.Popen[bytes] | ForkedProcess":
    whole_env = os.environ | env
    if is_forked and not any(name.startswith("PYTHON") for name in env):  # read when it starts
        directory = Path(command[0]).parent
        server = get_server() if directory == BIN else get_server(directory / "python")
        return server.start(command, output, errors, whole_env, mount_namespace)
    assert not mount_namespace, "only a fork enters a namespace"
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=whole_env
    )


def _migrate(url: str) -> None:
    store = open_store(DatabaseSettings(url))
    revisions.sync(store.engine)
    store.close()


@functools.cache
def _read_migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "db.sqlite"
        _migrate(f"sqlite:///{path}")
        return path.read_bytes()


def wait_until(condition, timeout: float = 60, interval: float = 0.05) -> None:
    """Wait until a condition holds; an AssertionError when it does not in time.

    The time is that of a machine with much else to do: what must be fast is measured by the bench.
    """
    began = time.monotonic()
    deadline = began + timeout
    while not condition():
        ended = time.monotonic()
        assert ended < deadline, "waited in vain"
        # A condition that runs a program leaves the processor to others half of the time.
        time.sleep(max(interval, min(ended - began, 1.0)))
        began = time.monotonic()
