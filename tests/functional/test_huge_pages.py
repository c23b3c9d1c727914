"""What an operator of a host with huge pages sees at the upgrade, compared with whole outputs.

``tests/golden/huge-pages/before.txt`` was recorded with the release before.
"""

import json
import re
import sqlite3
from pathlib import Path

import pytest
import yaml

from tests.builders import WORKLOAD
from tests.goldens import GOLDEN, check_golden
from tests.programs import Programs

GIB = 1024
CELL_GB, PAGES = 377, 340
"""GiB of each of two cells, and its pages of 1 GiB."""
NODE = {
    "nodename": "node-1",
    "vcpus": 64,
    "memory_mb": 2 * CELL_GB * GIB,
    "disk_gb": 1000,
    "cells": [
        {
            "id": number,
            "cpus": f"{32 * number}-{32 * number + 31}",
            "memory_mb": CELL_GB * GIB,
            "pages": {4: (CELL_GB - PAGES) * GIB * 256, 1024 * 1024: PAGES},
        }
        for number in (0, 1)
    ],
    "guests": [
        {"uuid": "11111111-1111-4111-8111-111111111111", "name": "vm-1", "kind": "instance",
         "vcpus": 4, "memory_mb": 16 * GIB, "disk_gb": 20, "power_state": "running"},
    ],
}  # fmt: skip
PLAIN = {"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 8, "MEMORY_MB": 256 * GIB}}
PAGED = PLAIN | {"numa": {"nodes": 1, "page_size": "1GB"}}


def show(programs: Programs, title: str, *arguments: str) -> str:
    done = programs.manage(*arguments)
    shown = re.sub(r"[^\S\n]+\n", "\n", done.stdout + done.stderr)
    return f"$ {title}\n{shown}exit code {done.returncode}\n\n"


def record(programs: Programs, directory: Path) -> str:
    """Return what an operator sees of the host."""
    found = ""
    for name, body in (("plain", PLAIN), ("paged", PAGED)):
        path = directory / f"{name}.json"
        path.write_text(json.dumps(body))
        title = f"claim create {name}.json --dry-run"
        found += show(programs, title, "claim", "create", str(path), "--dry-run")
    for size in ("64GiB", "16GiB"):
        request = ("candidate", "list", "--resource", f"MEMORY_MB={size}")
        found += show(programs, " ".join(request), *request)
    columns = ("node", "show", "host-1", "-c", "memory_mb", "-c", "memory_mb_used", "-f", "json")
    return found + show(programs, " ".join(columns), *columns)


def test_an_upgrade_leaves_huge_pages_out_of_the_memory_of_other_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    programs = Programs(tmp_path, down_after=36000)
    programs.make_schema()
    programs.inventory.write_text(yaml.safe_dump({"nodes": [NODE]}))
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:  # as `db sync` leaves it
        connection.execute("UPDATE compute_nodes SET huge_mb_unused = NULL")
        connection.execute("UPDATE services SET ended_epoch = NULL")
    checked = programs.run("nodetracker-status", "upgrade", "check", "--json")
    (found,) = [i for i in json.loads(checked.stdout)["checks"] if i["check"] == "Free amounts"]
    text = f"$ nodetracker-status upgrade check\n{found['details']}\n\n"
    stale = record(programs, tmp_path)  # the ledger decides by the row
    assert "memory outside huge pages: 57.5 GiB free, 256 GiB requested" in stale
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        connection.execute("UPDATE services SET ended_epoch = NULL")
    after = record(programs, tmp_path)
    check_golden("huge-pages/after.txt", text + after)
    assert after != (GOLDEN / "huge-pages" / "before.txt").read_text()
    again = programs.run("nodetracker-status", "upgrade", "check", "--json")
    assert all(item["details"] is None for item in json.loads(again.stdout)["checks"])
