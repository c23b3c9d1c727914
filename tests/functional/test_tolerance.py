"""A service finds out which losses of hosts the fleet survives, and the command answers it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.tolerance import Verdict
from tests.builders import create, make_empty_values, make_guest, register
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until

INTERVAL = 2


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Hosts h1 and h2 have a guest of 2 CPUs each, on 4; that of standalone has room for none."""
    programs = Programs(tmp_path, host="api", down_after=3600)
    programs.make_schema()
    extra = (
        f"[api]\nport = {find_free_port()}\nauth_strategy = noauth\n"
        f"[conductor]\nport = {find_free_port()}\n"
        f"[scheduler]\ntolerance_interval = {INTERVAL}"
    )
    programs.configure(extra=extra)
    small = {"nodename": "n", "vcpus": 1, "memory_mb": 1024, "disk_gb": 1}
    programs.inventory.write_text(json.dumps({"nodes": [small]}))
    return programs


@pytest.fixture
def store(programs: Programs) -> Iterator[SqlStore]:
    with contextlib.closing(open_store(DatabaseSettings(programs.connection))) as store:
        for number in (1, 2):
            agent = register(store, f"h{number}", f"agent-of-h{number}")
            store.report_state(agent, 1, AuditState())
            values = make_empty_values(vcpus=4)
            changes = [create(agent, "n", values, (make_guest(number),))]
            store.apply_changes(agent, changes, programs.down_after)
        yield store


def read_verdicts(store: SqlStore) -> dict[str, Verdict]:
    return {item.host: item.verdict for item in store.list_tolerances()}


@pytest.mark.parametrize("program", ["api", "conductor", "standalone"])
def test_it_is_found_out_and_follows_the_fleet(
    programs: Programs, store: SqlStore, program: str
) -> None:
    with programs.start(f"nodetracker-{program}") as running:
        both = dict.fromkeys(("h1", "h2"), Verdict.SURVIVED)
        wait_until(lambda: both.items() <= read_verdicts(store).items())

        def is_answered(code: int, text: str) -> bool:
            """Return whether the command answers; while this machine is busy, it adds an age."""
            done = programs.manage("fleet", "tolerance")
            return (done.returncode, done.stderr) == (code, f"{text}\n")

        wait_until(lambda: is_answered(0, "Survives the loss of any one host"))
        store.set_service("h2", COMPUTE_BINARY, ServiceChange(disabled=True))
        wait_until(lambda: read_verdicts(store)["h1"] is Verdict.NOT_SURVIVED)
        assert read_verdicts(store)["h2"] is Verdict.SURVIVED
        wait_until(lambda: is_answered(1, "Does not survive the loss of h1 (1 guest of 2 GiB)"))
        assert "tolerance" not in running.output()


def test_why_a_child_cannot_is_logged(programs: Programs, store: SqlStore) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE claims")
    with programs.start("nodetracker-api") as running:
        running.wait_for("tolerance failed: ")
        assert "Traceback" not in running.output()
