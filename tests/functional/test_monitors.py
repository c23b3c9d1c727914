"""Monitors as an operator meets them: the row, the notification, the exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nodetracker.model.node import VOLATILE_COLUMNS
from nodetracker.virt.host.monitors import METRICS
from tests.programs import Programs

PERCENTS = {name for name in METRICS if name.endswith("_percent")}
SECONDS = {name for name in METRICS if name.endswith("_seconds")}


def test_a_row_has_what_the_monitor_measures(tmp_path: Path) -> None:
    programs = Programs(tmp_path, driver="local", compute_monitors="cpu.virt_driver")
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    row = programs.ask("node", "show", "host-1")
    assert row["metrics"].keys() >= SECONDS | PERCENTS | {"memory_used_mb"}
    assert row["metrics"]["cpu_idle_seconds"] > 0
    programs.configure(driver="local")
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    lines = programs.ask("node", "history", "host-1", "--long")
    _, *later = (line for line in lines if line["kind"] == "node")
    # This machine may have changed meanwhile, but a monitor that is gone is no such change.
    assert all(change["diff"].keys() - VOLATILE_COLUMNS for change in later)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("cpu.virtdriver", "unknown monitor 'cpu.virtdriver'; known: cpu.virt_driver"),
        ("cpu.virt_driver,cpu.virt_driver", "duplicate monitor 'cpu.virt_driver'"),
    ],
    ids=["unknown", "twice"],
)
def test_a_wrong_name_is_exit_code_78(tmp_path: Path, names: str, text: str) -> None:
    programs = Programs(tmp_path, driver="local", compute_monitors=names)
    for program, *arguments in (["nodetracker-compute"], ["nodetracker-manage", "config", "check"]):
        done = programs.run(program, *arguments)
        assert done.returncode == 78
        assert f"[compute] compute_monitors: {text}" in done.stderr


def test_nodes_of_other_machines_are_not_measured(tmp_path: Path) -> None:
    programs = Programs(tmp_path, compute_monitors="cpu.virt_driver")
    node = {"nodename": "n1", "vcpus": 4, "memory_mb": 4096, "disk_gb": 10}
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
    programs.make_schema()
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 0
    assert "compute_monitors: not used, as the nodes of fake are not this machine" in done.stderr
    assert not programs.ask("node", "show", "host-1")["metrics"].keys() & METRICS


def test_the_default_of_standalone_is_no_reason_to_warn(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    with programs.start("nodetracker-standalone") as running:
        running.wait_for("is ready")
        assert running.stop() == 0
    assert "compute_monitors" not in running.output()


def test_psutil_is_imported_by_readings_and_not_with_the_agent() -> None:
    script = (
        "import sys; from nodetracker.cmd import compute; from nodetracker.virt.host import monitors; "
        "from nodetracker.virt.local import plugin; "
        "sys.exit('psutil' in sys.modules and 'psutil was imported')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
