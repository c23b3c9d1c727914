"""Child processes get a task, yield to others, and end with their parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from nodetracker.model.errors import ChildError
from nodetracker.process.child import run_child


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Return a function that makes a program a child can be."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(text):
        (tmp_path / "a_child.py").write_text(textwrap.dedent(text))
        return "a_child"

    return write


TAKE = "import os, sys, time\nfrom nodetracker.process.child import take_task\ntask = take_task()\n"


def test_a_child_does_its_task_and_yields_to_others(write_module, tmp_path):
    name = write_module(f"{TAKE}open(task['path'], 'w').write(str(os.nice(0)))")
    path = tmp_path / "out"
    run_child(name, {"path": str(path)})
    assert path.read_text() == str(min(os.nice(0) + 10, 19))


def test_what_a_child_wrote_last_says_why_it_failed(write_module):
    name = write_module(f"{TAKE}print('more', file=sys.stderr)\nraise ValueError('no such thing')")
    with pytest.raises(ChildError, match=r"^ValueError: no such thing$"):
        run_child(name, {})
    with pytest.raises(ChildError, match="^exit code 3$"):
        run_child(write_module(f"{TAKE}os._exit(3)"), {})


def test_a_child_that_takes_no_task_has_failed(write_module):
    with pytest.raises(ChildError, match="exit code 4"):
        run_child(write_module("import os\nos._exit(4)"), {"much": "x" * 10**6})


def test_a_child_ends_with_its_parent_however_that_ends(write_module, tmp_path):
    path = tmp_path / "pid"
    name = write_module(f"{TAKE}open(task, 'w').write(str(os.getpid()) + '.')\ntime.sleep(60)")
    code = f"from nodetracker.process.child import run_child; run_child({name!r}, {str(path)!r})"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        _wait(lambda: path.exists() and path.read_text().endswith("."))
        child = psutil.Process(int(path.read_text()[:-1]))
        parent.send_signal(signal.SIGKILL)
    _wait(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def _wait(is_done):
    end = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.05)
