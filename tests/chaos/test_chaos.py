"""A minute of faults under load, after which the judge finds nothing wrong; see `run` for more."""

from pathlib import Path

import pytest

from tests.chaos.run import Plan, carry_out

FAULTS, ACKNOWLEDGED = 8, 50
"""At least; how many more there are depends on the machine and what else it does."""


@pytest.mark.parametrize(("database", "seed"), [("mariadb", 1)])
def test_a_minute_of_faults_loses_nothing_and_sells_nothing_twice(
    tmp_path: Path, database: str, seed: int
) -> None:
    plan = Plan(seed, database, seconds=55, lasting=(1.5, 6), hosts=6, clients=4)
    outcome = carry_out(plan, tmp_path)
    assert outcome.wrong == []
    assert outcome.faults.total() >= FAULTS
    assert outcome.acknowledged >= ACKNOWLEDGED
