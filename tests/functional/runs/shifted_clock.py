"""Runs a program with a wall clock that is off by as many seconds as a file says.

``python -m tests.functional.runs.shifted_clock FILE compute|conductor ARGUMENTS…``
"""

import datetime as library
import sys
import time
from pathlib import Path

from nodetracker.cmd import compute, conductor
from nodetracker.db.connection import sessions
from nodetracker.process import clock

MODULES = (clock, sessions)
PROGRAMS = {"compute": compute.main, "conductor": conductor.main}


def shift_clock(path: Path) -> None:
    """Let every clock of this process that can be set be off."""
    wall_clock = time.time

    def read_shift() -> float:
        return float(path.read_text() or 0)

    class ShiftedDatetime(library.datetime):
        @classmethod
        def now(cls, tz=None):
            return library.datetime.now(tz) + library.timedelta(seconds=read_shift())

    time.time = lambda: wall_clock() + read_shift()
    for module in MODULES:
        assert module.datetime is library.datetime, module
        module.datetime = ShiftedDatetime


if __name__ == "__main__":
    shift_clock(Path(sys.argv[1]))
    sys.exit(PROGRAMS[sys.argv[2]](sys.argv[3:]))
