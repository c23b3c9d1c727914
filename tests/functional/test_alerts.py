"""The alert rules that ship, judged by Prometheus's own tool."""

import subprocess
from pathlib import Path

import pytest

from tests.functional.servers.process import require

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "etc" / "prometheus" / "nodetracker.rules.yml"


@pytest.mark.parametrize(
    ("action", "path"),
    [("check", RULES), ("test", HERE / "nodetracker.rules.test.yml")],
    ids=["syntax", "alerts"],
)
def test_the_alert_rules_are_valid_and_fire(action, path):
    require("promtool")
    done = subprocess.run(
        ["promtool", action, "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
