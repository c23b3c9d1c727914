"""Give a task to a child process, which ends with its parent.

The child gets the task, and afterwards nothing, by its standard input: the end of that is the
end of its parent, however it came about.
"""

import json
import os
import subprocess
import sys
import threading
from io import FileIO
from typing import Any

_NICENESS = 10


class ChildError(Exception):
    """A child process has failed; the last line that it wrote says why."""


def run_child(module: str, task: Any) -> None:
    """Run a module of this installation as a program until it has done a task.

    Args:
        task: plain JSON, for `take_task`.

    Raises:
        ChildError: it failed.
    """
    command = [sys.executable, "-P", "-m", module]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]  # noqa: S603
        try:
            child.stdin.write(json.dumps(task).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # what it wrote says why it has ended
        written = child.stderr.read().decode(errors="replace").strip()
    if child.returncode:
        raise ChildError(written.rpartition("\n")[2] or f"exit code {child.returncode}")


def take_task() -> Any:
    """Return the task of this process, a child, which yields to others and ends with its parent."""
    os.nice(_NICENESS)
    given = FileIO(0, closefd=False)  # a buffered one must not be read while Python ends
    task = json.loads(given.readline())
    threading.Thread(target=_end_with_parent, args=(given,), name="parent", daemon=True).start()
    return task


def _end_with_parent(given: FileIO) -> None:
    given.read(1)
    os._exit(1)
