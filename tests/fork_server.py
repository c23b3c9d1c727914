"""Run programs in forks of one process that has imported them already.

Starting a program takes half a second of imports, and the tests start hundreds. Each is still a
process of its own: with its own arguments, environment, standard streams and exit code, and
nothing of an earlier one in it. Tests of the start itself run what is installed instead.

The server is this module's `main`; `ForkServer` is the tests' side of it. One message asks for
one process: what it is to be as JSON, and with it the socket for its answers and its three
standard streams.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

_LONGEST_MESSAGE = 2**17
_LIBRARIES = (
    "alembic.command", "cliff.formatters.table", "psycopg", "pymysql", "sqlalchemy.dialects.sqlite",
)  # fmt: skip
"""Imported late by programs, as not every one needs them."""


class ForkedProcess:
    """A process that the server forked, used like a `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], answers: socket.socket) -> None:
        self.args = list(command)
        self._answers = answers
        self.returncode: int | None = None
        self.pid = int(answers.recv(100))

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._receive(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended.

        Raises:
            TimeoutExpired: it still runs.
        """
        code = self._receive(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _receive(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = int(self._answers.recv(100))
            self._answers.close()
        return self.returncode


class ForkServer:
    """The server's process; it ends with the one that started it.

    Args:
        python: of another environment, whose release of nodetracker it runs.
    """

    def __init__(self, python: Path | None = None) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.fork_server"]
        if python is not None:
            command = [str(python), "-P", "-E", __file__]  # nothing of this tree can be imported
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=theirs, cwd=Path(__file__).parent.parent
            )

    def start(
        self,
        command: Sequence[str],
        output: IO[bytes],
        errors: IO[bytes],
        env: Mapping[str, str],
        mount_namespace: str = "",
        source: int | None = None,
    ) -> ForkedProcess:
        """Start a program.

        Args:
            command: path of one of nodetracker's programs or name of a module with a function
                `main`, and its arguments.
            mount_namespace: file of the namespace that it enters first; "" = that of the tests.
            source: descriptor of its standard input; None = nothing.
        """
        request = {
            "command": list(command),
            "env": dict(env),
            "cwd": str(Path.cwd()),
            "mount_namespace": mount_namespace,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Path(os.devnull).open("rb") as nothing:
            given = nothing.fileno() if source is None else source
            streams = [given, output.fileno(), errors.fileno()]
            socket.send_fds(
                self._requests, [json.dumps(request).encode()], [theirs.fileno(), *streams]
            )
        return ForkedProcess(command, ours)


@functools.cache
def get_server(python: Path | None = None) -> ForkServer:
    """Return the server of this process, started by the first who asks."""
    return ForkServer(python)


def main() -> int:
    """Fork for each request, in the fork run its program, and return the program's exit code."""
    _import_programs()
    gc.collect()
    gc.freeze()  # so that forks share the memory
    requests = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who attend a program
    while True:
        data, descriptors, *_ = socket.recv_fds(requests, _LONGEST_MESSAGE, 4)
        if not data:
            return 0
        assert threading.active_count() == 1, threading.enumerate()
        if os.fork() == 0:
            requests.close()
            return _attend(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _import_programs() -> None:
    import nodetracker.cmd

    names = [found.name for found in pkgutil.walk_packages(nodetracker.__path__, "nodetracker.")]
    names.remove("nodetracker.cmd.wsgi")  # reads the configuration when it is imported
    for name in (*names, *_LIBRARIES):
        with contextlib.suppress(ImportError):  # of a library that is not installed
            importlib.import_module(name)


def _attend(request: dict, descriptors: list[int]) -> int:
    """Run a program in a process of its own and answer with its id and exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answers = socket.socket(fileno=descriptors[0])
    pid = os.fork()
    if pid == 0:
        answers.close()
        for number, descriptor in enumerate(descriptors[1:]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return _run(request)
    try:
        for descriptor in (0, 1, 2, *descriptors[1:]):
            os.close(descriptor)
        answers.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        answers.send(str(os.waitstatus_to_exitcode(status)).encode())
    except OSError:
        pass  # the tests have ended
    os._exit(0)


def _run(request: dict) -> int:
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if request["mount_namespace"]:
        _enter(request["mount_namespace"])
    os.chdir(request["cwd"])
    sys.argv = request["command"]
    name = Path(sys.argv[0]).name
    if name.startswith("nodetracker-"):
        name = f"nodetracker.cmd.{name.removeprefix('nodetracker-')}"
    code: int = importlib.import_module(name).main()
    return code


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
    descriptor = os.open(namespace, os.O_RDONLY)
    root = os.open(Path(namespace).parents[1] / "root", os.O_RDONLY)
    if libc.setns(descriptor, 0) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.fchdir(root)
    os.chroot(".")  # the namespace's own root is outside of a chroot in which the tests run
    os.close(root)
    os.close(descriptor)


def _end(code: object) -> NoReturn:
    """Exit as the interpreter does, but without freeing each object.

    That would copy all memory that the forks share, and takes twice the time of most programs.
    """
    if not isinstance(code, int | None):
        sys.exit(code)  # a message
    threading._shutdown()  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    try:
        exit_code: object = main()
    except SystemExit as raised:
        exit_code = raised.code
    _end(exit_code)
