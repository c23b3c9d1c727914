"""An agent that runs for months must not grow.

``NODETRACKER_HOURS=12`` in the environment lets it work for as many hours; it is a few otherwise.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import Programs

ALLOWED_GROWTH = 1.03


@pytest.mark.timeout(600)  # on a slow machine that runs other tests as well
def test_hours_of_audits_and_heartbeats_leave_nothing_behind(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    programs.make_schema()
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.functional.runs.endurance",
            programs.path, programs.inventory,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=590,
    )  # fmt: skip
    samples = json.loads(done.stdout)
    settled, last = samples[len(samples) // 3], samples[-1]
    assert last["rss_kib"] <= settled["rss_kib"] * ALLOWED_GROWTH, samples
    assert last["threads"] <= settled["threads"] + 1, samples
    assert last["descriptors"] <= settled["descriptors"] + 1, samples
    assert programs.ask("service", "list")[0]["epoch"] == 1
