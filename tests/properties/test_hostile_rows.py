"""Rows of which several columns were written by somebody else: ``tox -e properties``."""

from collections import Counter
from math import inf

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.db.schema import tables
from tests.contract.test_damaged_rows import KEYS, Fleet, garbage_for, read_everything
from tests.hostile.limits import limited
from tests.stores import SqliteStore

COLUMNS = [
    column
    for table in tables.metadata.sorted_tables
    for column in table.c
    if column.name not in KEYS
]
FACTS = ("compute_nodes", "guests", "pci_devices")
"""What the next audit overwrites."""

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(SqliteStore())


def test_no_number_of_damaged_columns_fails_a_reader(fleet: Fleet) -> None:
    damages = st.sampled_from(COLUMNS).flatmap(
        lambda column: st.tuples(st.just(column), st.sampled_from(garbage_for(column)))
    )

    @settings(max_examples=60)
    @given(st.lists(damages, min_size=2, max_size=8, unique_by=lambda damage: damage[0]))
    def check(chosen: list[tuple[sa.Column[object], str]]) -> None:
        fleet.restore()
        for column, garbage in chosen:
            fleet.damage(column, garbage)
        with limited(seconds=inf):
            assert read_everything(fleet, Counter()) == []
        if any(column.table.name == "services" for column, _ in chosen):
            return  # its agent may be fenced
        fleet.audit()
        left = {
            name: found
            for name in FACTS
            if any(found := fleet.list_damage(tables.metadata.tables[name]))
        }
        assert left == {}

    try:
        check()
    finally:
        fleet.restore()
