"""Measure the CPU time of nodetracker-manage, and of drawing a large fleet."""

import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.terminal import Terminal
from tests.programs import Programs
from tests.unit.cmd.screen import fleets

RUNS = 3
NODES = 1000

COMMANDS = {
    "help": ("--help",),
    "help_of_a_command": ("node", "list", "--help"),
    "list": ("node", "list"),
    "list_as_json": ("node", "list", "-f", "json"),
    "overview": ("overview",),
}
LIBRARIES = (
    "cliff.app, oslo_config.cfg, oslo_db.sqlalchemy.enginefacade, sqlalchemy.dialects.sqlite"
)


def measure_commands(directory: Path) -> dict[str, float]:
    """Return the least CPU seconds of commands on an SQLite database, over some runs.

    The last is their floor: what importing the libraries takes that a list needs.
    """
    place = directory / "commands"
    programs = Programs(place)
    programs.make_schema()
    program = shutil.which("nodetracker-manage", path=str(Path(sys.executable).parent))
    start = [str(program), f"--config-file={programs.path}"]
    lines = {name: [*start, *arguments] for name, arguments in COMMANDS.items()}
    lines["libraries_of_a_list"] = [sys.executable, "-c", f"import {LIBRARIES}"]
    return {name: min(_run(line) for _ in range(RUNS)) for name, line in lines.items()}


def measure_drawing(nodes: int = NODES) -> float:
    """Return the CPU seconds in which the overview of a fleet is drawn with colors."""
    view, terminal = fleets.view(fleets.many_nodes(nodes)), Terminal(120, has_color=True)
    begin = time.process_time()
    Screen(io.StringIO(), terminal).show(draw_overview(view, terminal))
    return time.process_time() - begin


def _run(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime
