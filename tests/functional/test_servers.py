"""Servers of the tests that cannot be started or prepared leave no process and no file."""

from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import ServerProcess


@pytest.mark.parametrize("kind", [MariaDB, PostgreSQL])
def test_one_that_cannot_be_prepared_is_removed(
    kind: type[MariaDB | PostgreSQL], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[ServerProcess, int]] = []

    def fail(server: Any, *statements: str) -> None:
        made.append((server.process, server.process.pid))
        raise OSError

    monkeypatch.setattr(kind, "execute", fail)
    with pytest.raises(OSError):
        kind()
    ((process, pid),) = made
    try:
        assert not psutil.pid_exists(pid)
        assert not process.directory.exists()
    finally:
        process.remove()


def test_one_that_is_interrupted_while_it_starts_is_killed_with_its_children() -> None:
    process = ServerProcess("sleep")
    seen: list[psutil.Process] = []

    def interrupt() -> bool:
        with suppress(psutil.NoSuchProcess):
            seen[:] = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        if len(seen) == 2:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        process.launch(["sh", "-c", "sleep 60 & wait"], interrupt)
    try:
        assert psutil.wait_procs(seen, timeout=60)[1] == []
        assert not process.is_running
    finally:
        process.remove()
