"""The daemon's end, in a process of its own, as it handles signals."""

import subprocess
import sys

FAILING = """
from nodetracker.process.daemon import Daemon

class Failing:
    graceful_shutdown_timeout = 1

    def start(self, on_started, on_fatal):
        on_fatal(OSError("the cause"))

    def stop(self):
        raise RuntimeError("the consequence")

Daemon(Failing(), print, print).run()
"""


def test_why_a_process_ends_is_logged_even_if_it_cannot_stop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "ending the process" in done.stderr
    assert done.stderr.index("OSError: the cause") < done.stderr.index("the consequence")


def test_collections_do_not_traverse_what_a_program_has_loaded() -> None:
    program = "import gc" + FAILING.replace("on_fatal(", "print(gc.get_freeze_count()); on_fatal(")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert int(done.stdout.split()[0]) > 5000
