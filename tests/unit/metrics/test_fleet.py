"""The page of the fleet's metrics."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodetracker.metrics.fleet import render_page
from tests.unit.accounting.reports.test_overview import NODE, build

GOLDEN = Path(__file__).parents[2] / "golden" / "fleet-metrics.txt"


def test_the_page_equals_the_golden_file():
    page = render_page(build(NODE), has_nodes=True).decode()
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(page)
    assert page == GOLDEN.read_text()


def test_an_empty_fleet_has_totals():
    page = render_page(build(services=()), has_nodes=True).decode()
    assert "\nnodetracker_fleet_disk_capacity_bytes 0.0\n" in page
    assert "nodename=" not in page


def check_with_promtool(page):
    """Let promtool check a page of metrics, if it is installed."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_promtool_accepts_the_page():
    check_with_promtool(GOLDEN.read_text())
