"""Give a task to a child process, which ends with its parent.

The child gets the task, and afterwards nothing, by its standard input: the end of that is the
end of its parent, however it came about.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from typing import Any

from nodetracker.model.errors import ChildError, ExhaustedError, exhaustion_explained
from nodetracker.process.workers import start_thread

_NICENESS = 10


def run_child(module: str, task: Any) -> None:
    """Run a module of this installation as a program until it has done a task.

    Args:
        task: plain JSON, for `take_task`.

    Raises:
        ChildError: it failed.
        ExhaustedError: it could not be started.
    """
    command = [sys.executable, "-P", "-m", module]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with process_limit_explained():
        started = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]  # noqa: S603
    with started as child:
        try:
            child.stdin.write(json.dumps(task).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # what it wrote says why it has ended
        written = child.stderr.read().decode(errors="replace").strip()
    if child.returncode:
        raise ChildError(written.rpartition("\n")[2] or f"exit code {child.returncode}")


@contextmanager
def process_limit_explained() -> Iterator[None]:
    """Raise an ExhaustedError where no process can be started."""
    try:
        with exhaustion_explained():
            yield
    except BlockingIOError as error:  # of fork
        text = "no process can be started: the limit of processes is reached"
        raise ExhaustedError(text) from error


def take_task() -> Any:
    """Return the task of this process, a child, which yields to others and ends with its parent."""
    os.nice(_NICENESS)
    given = FileIO(0, closefd=False)  # a buffered one must not be read while Python ends
    task = json.loads(given.readline())
    start_thread("parent", partial(_end_with_parent, given))
    return task


def _end_with_parent(given: FileIO) -> None:
    given.read(1)
    os._exit(1)
