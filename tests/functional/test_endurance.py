"""An agent that runs for months must not grow.

``NODETRACKER_HOURS=12`` in the environment lets it work for as many hours; it is a few otherwise.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.programs import Programs

ALLOWED_GROWTH = 1.03


def work_for_hours(programs: Programs, **env: str) -> Iterator[dict[str, int]]:
    """Let an agent work; yield each of its samples, while it waits."""
    command = [
        sys.executable, "-m", "tests.functional.runs.endurance", programs.path, programs.inventory,
    ]  # fmt: skip
    with (
        (programs.directory / "output").open("w") as log,
        subprocess.Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=log, text=True, env=os.environ | env
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0


@pytest.mark.timeout(600)  # on a slow machine that runs other tests as well
def test_hours_of_audits_and_heartbeats_leave_nothing_behind(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    programs.make_schema()
    samples = list(work_for_hours(programs))
    settled, last = samples[len(samples) // 3], samples[-1]
    assert last["rss_kib"] <= settled["rss_kib"] * ALLOWED_GROWTH, samples
    assert last["threads"] <= settled["threads"] + 1, samples
    assert last["descriptors"] <= settled["descriptors"] + 1, samples
    assert programs.ask("service", "list")[0]["epoch"] == 1
