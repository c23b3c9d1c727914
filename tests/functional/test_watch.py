"""`overview --watch` on a terminal: its keys, and that the terminal is afterwards as it was."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
import yaml

from tests.programs import BIN, Programs, wait_until

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    programs = Programs(tmp_path_factory.mktemp("watch"), down_after=3600)
    nodes = [
        {"nodename": name, "vcpus": 8, "memory_mb": 4096, "disk_gb": 50}
        for name in ("a" * 200, "second")
    ]
    programs.inventory.write_text(yaml.safe_dump({"nodes": nodes}))
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    return programs


class Watched:
    """`overview --watch` in a pseudoterminal of 100 x 30."""

    def __init__(self, process, master, slave) -> None:
        self.process = process
        self.master = master
        self.slave = slave
        self.shown = ""

    def press(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Read what is shown from here on until a pattern is."""
        end, shown = time.monotonic() + WAIT_SECONDS, ""
        while not re.search(pattern, shown):
            wait = max(0.0, end - time.monotonic())
            assert select.select([self.master], [], [], wait)[0], shown
            try:
                found = os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(shown) from None
            shown += found
            self.shown += found

    @property
    def settings(self):
        return termios.tcgetattr(self.slave)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def watch(programs):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    environment = os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment.pop("COLUMNS", None)
    environment.pop("LINES", None)
    command = [
        str(BIN / "nodetracker-manage"), f"--config-file={programs.path}", "overview", "--watch", "1"
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, process_group=0
    )
    watched = Watched(process, master, slave)
    before = watched.settings
    try:
        yield watched
        watched.wait_for(r"\x1b\[\?25h\x1b\[\?1049l")
        assert process.wait(WAIT_SECONDS) == 0
        assert watched.settings == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_keys_move_filter_sort_and_describe(programs):
    with watch(programs) as watched:
        watched.wait_for("second")
        assert "a" * 200 not in watched.shown
        watched.press("s")
        watched.wait_for("the fullest by CPU first")
        watched.press("/sec\r")
        watched.wait_for('nodes with "sec"')
        watched.press("\r")
        watched.wait_for("Why used")
        watched.press("\x1b")
        watched.wait_for("Enter: describe")
        watched.press("q")


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_it_ends_with_the_last_picture_and_the_terminal_as_it_was(programs, key):
    with watch(programs) as watched:
        watched.wait_for("second")
        watched.press(key)
    assert watched.process.returncode == 0


def test_sigterm_leaves_the_terminal_as_it_was(programs):
    with watch(programs) as watched:
        watched.wait_for("second")
        watched.process.send_signal(signal.SIGTERM)


def test_a_suspended_watch_gives_the_terminal_back_until_it_goes_on(programs):
    with watch(programs) as watched:
        watched.wait_for("second")
        raw = watched.settings
        watched.process.send_signal(signal.SIGTSTP)
        watched.wait_for(r"\x1b\[\?25h\x1b\[\?1049l")
        wait_until(lambda: is_stopped(watched.process.pid), WAIT_SECONDS)
        assert watched.settings != raw
        watched.process.send_signal(signal.SIGCONT)
        watched.wait_for(r"\x1b\[\?1049h")
        watched.wait_for("second")
        watched.press("q")


def test_an_overview_that_does_not_fit_is_summed_up_but_in_a_pipe(programs):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (11, 100))
    environment = os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    environment.pop("LINES", None)
    command = [str(BIN / "nodetracker-manage"), f"--config-file={programs.path}", "overview"]
    with contextlib.closing(os.fdopen(master, "rb", 0)) as output:
        done = subprocess.run(command, stdout=slave, env=environment, timeout=WAIT_SECONDS)
        os.close(slave)
        shown = output.read(65536).decode()
    assert done.returncode == 0
    assert "\u2026 and 2 nodes: CPU" in shown
    assert "second" not in shown
    assert "second" in programs.manage("overview").stdout
