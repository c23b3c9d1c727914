"""Runs a program with a wall clock that is off by as many seconds as a file says.

``python -m tests.functional.runs.shifted_clock FILE api|compute|conductor ARGUMENTS…``
"""

import datetime as library
import os
import sys
import time
from pathlib import Path

from nodetracker.cmd import api, compute, conductor
from nodetracker.db.connection import sessions
from nodetracker.process import clock

MODULES = (clock, sessions)
PROGRAMS = {"api": api.main, "compute": compute.main, "conductor": conductor.main}


def shift_clock(path: Path) -> None:
    """Let every clock of this process that can be set be off."""
    wall_clock, last = time.time, ["0"]
    # It stays open: a clock can be read by whoever is at a limit of descriptors.
    descriptor = os.open(path, os.O_RDONLY)

    def read_shift() -> float:
        last[0] = os.pread(descriptor, 100, 0).decode().strip() or last[0]  # empty: being written
        return float(last[0])

    class ShiftedDatetime(library.datetime):
        @classmethod
        def now(cls, tz=None):
            return library.datetime.now(tz) + library.timedelta(seconds=read_shift())

    time.time = lambda: wall_clock() + read_shift()
    for module in MODULES:
        assert module.datetime is library.datetime, module
        module.datetime = ShiftedDatetime


def main() -> int:
    """Shift the clock and run the program."""
    shift_clock(Path(sys.argv[1]))
    code: int = PROGRAMS[sys.argv[2]](sys.argv[3:])
    return code


if __name__ == "__main__":
    sys.exit(main())
