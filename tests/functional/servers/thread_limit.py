"""A limit of threads for a process that runs, as ``TasksMax`` of its unit sets it."""

import os
import time
from pathlib import Path

from tests.functional.servers.process import require_root, skip_or_fail

_V1, _V2 = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")


class ThreadLimit:
    """A control group of one process."""

    def __init__(self, pid: int) -> None:
        require_root("make a cgroup")
        parent = _V1 if _V1.exists() else _V2
        self._path = parent / f"nodetracker-{os.getpid()}-{time.monotonic_ns()}"
        try:
            self._path.mkdir()
            (self._path / "pids.max").write_text("max")
        except OSError as error:
            skip_or_fail(f"no cgroup with a limit of threads can be made: {error}")
        (self._path / "cgroup.procs").write_text(str(pid))

    def reach(self) -> None:
        """Allow no more threads than there are."""
        (self._path / "pids.max").write_text((self._path / "pids.current").read_text().strip())

    def lift(self) -> None:
        """Allow any number."""
        (self._path / "pids.max").write_text("max")

    def count_refused(self) -> int:
        """Return how many threads or processes could not be started."""
        return int((self._path / "pids.events").read_text().split()[1])

    def remove(self) -> None:
        """Remove the group, once its process has ended."""
        for _ in range(100):
            try:
                self._path.rmdir()
            except OSError:
                time.sleep(0.1)
            else:
                return
