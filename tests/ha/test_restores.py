"""Restores to states of each age, one after the other, as `tests.functional.test_restore` does."""

from pathlib import Path

import pytest

from tests.functional.restores import Restores
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.test_restore import A_DAY, A_MINUTE, AN_INTERVAL, run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_states_of_an_interval_a_minute_and_a_day_ago(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: MariaDB | PostgreSQL = request.getfixturevalue(name)
    run(Restores(tmp_path / name, server, "nt_restores"), (AN_INTERVAL, A_MINUTE, A_DAY) * 2)
