"""Base of all test servers: a directory, a free port, one child process."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import psutil
import pytest
import sqlalchemy as sa

if TYPE_CHECKING:
    from tests.functional.servers.small_disk import SmallDisk

READY_SECONDS = 180.0


def skip_or_fail(reason: str) -> NoReturn:
    """Skip without a server, or fail where ``CI=true``, which requires all servers."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def require(*programs: str | Path) -> None:
    """Skip, or fail where ``CI=true``, when a program is not installed."""
    missing = [str(name) for name in programs if shutil.which(str(name)) is None]
    if missing:
        skip_or_fail(f"needs {', '.join(missing)}: see bindep.txt")


def require_root(purpose: str) -> None:
    """Skip, or fail where ``CI=true``, when this is not root."""
    if os.geteuid() != 0:
        skip_or_fail(f"only root may {purpose}")


def _order_ports() -> Iterator[int]:
    """Yield the ports of this process of the tests, over and over.

    Eight processes have their own, and each port comes again after all others: between the
    choice of a port and its server's start pass seconds, in which many more are chosen.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(15_000 + worker % 8, 32_000, 8)
    first = random.randrange(len(own))  # others may run tests on this machine, too
    return itertools.cycle([*own[first:], *own[:first]])


_PORTS = _order_ports()


def find_free_port() -> int:
    """Return a TCP port on 127.0.0.1 that is free.

    Below the range that outgoing connections take theirs from, so that it is
    still free when a server comes back.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def add_options(url: str, **options: object) -> str:
    """Return the URL of a database with further options."""
    query = {name: str(value) for name, value in options.items()}
    return sa.make_url(url).update_query_dict(query).render_as_string(hide_password=False)


class _Removable(Protocol):
    def remove(self) -> None: ...


@contextlib.contextmanager
def removed_on_failure(server: _Removable) -> Iterator[None]:
    """Remove a server, or servers, that the block cannot finish: nobody else will have it."""
    try:
        yield
    except BaseException:
        server.remove()
        raise


def run_client(command: Sequence[str | Path], given: bytes = b"") -> bytes:
    """Return what a client of a server prints; its error also says what it complained of."""
    try:
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr.decode(errors="replace"))
        raise


def wait_for_end(killed: set[int], list_connections: Callable[[], set[int]]) -> None:
    """Wait until killed connections have ended; until then their next statement may still run."""
    deadline = time.monotonic() + READY_SECONDS
    while left := killed & list_connections():
        assert time.monotonic() < deadline, f"connections {left} do not end"
        time.sleep(0.01)


def suspend(pid: int) -> None:
    """Suspend a process; return when none of its threads runs any more."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + READY_SECONDS
    while any(state not in "TtZX" for state in _list_thread_states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _list_thread_states(pid: int) -> list[str]:
    """Return the letters of proc(5) for the states of a process's threads."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return states


class ServerProcess:
    """A server in its own directory; `start` and `stop` may be called repeatedly."""

    disk: "SmallDisk | None" = None  # where the server's files are, when it may become full

    def __init__(self, name: str, user: str | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"nodetracker-{name}-"))
        self.port = find_free_port()
        self.user = user if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(self.directory, self.user, self.user)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's own process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server was started and not stopped."""
        return self._process is not None

    @property
    def has_crashed(self) -> bool:
        """Whether the server has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program that prepares the server, as the server's user."""
        with self._log().open("ab") as log:
            subprocess.run(
                self.as_user(command),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                timeout=READY_SECONDS,
            )

    def launch(
        self,
        command: Sequence[str | Path],
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the server and wait until it answers a real request."""
        with self._log().open("ab") as log:
            self._process = subprocess.Popen(
                self.as_user(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                env=environment,
            )
        deadline = time.monotonic() + READY_SECONDS
        try:
            while not is_ready():
                code = self._process.poll()
                if code is not None or time.monotonic() > deadline:
                    text = self._log().read_text(errors="replace")[-2000:]
                    pytest.fail(f"the server did not start (exit status {code}):\n{text}")
                time.sleep(0.05)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # and what it has started
            self.kill()
            raise

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server normally."""
        if self._process is not None:
            self.thaw()
            self._process.send_signal(number)
            try:
                self._process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)  # and what it has started
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Kill the server's first process alone; what it has started may go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut_power(self) -> None:
        """Kill the server and all its processes at one moment."""
        self.freeze()  # or one of them goes on with what another one's end allows
        children = psutil.Process(self.pid).children(recursive=True)
        self.kill()
        for child in children:
            child.kill()
        psutil.wait_procs(children)

    def freeze(self) -> None:
        """Suspend the server and all its processes; their sockets remain open."""
        suspend(self.pid)  # first, so that it starts no more processes
        for child in psutil.Process(self.pid).children(recursive=True):
            suspend(child.pid)

    def thaw(self) -> None:
        """Resume a suspended server."""
        self._signal_children(signal.SIGCONT)
        os.kill(self.pid, signal.SIGCONT)

    def _signal_children(self, number: signal.Signals) -> None:
        for child in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                child.send_signal(number)

    def remove(self) -> None:
        """Kill all processes and delete the directory."""
        self.kill()
        if self.disk is not None:
            self.disk.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _log(self) -> Path:
        return self.directory / "output.log"

    def as_user(self, command: Sequence[str | Path]) -> list[str]:
        """Return a command as the server's user runs it."""
        prefix = [] if self.disk is None else self.disk.prefix
        if self.user is not None:
            prefix = [
                *prefix,
                "setpriv",
                f"--reuid={self.user}",
                f"--regid={self.user}",
                "--init-groups",
            ]
        return [*prefix, *map(str, command)]


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
