"""The ledger's properties on SQLite: few examples, as those in memory test the decisions."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.stores import make_stores
from tests.unit.ledger.test_deletion_properties import DeletionMachine
from tests.unit.ledger.test_move_properties import MoveMachine
from tests.unit.ledger.test_properties import LedgerMachine

SETTINGS = settings(max_examples=4, stateful_step_count=20, deadline=None)


@pytest.fixture
def stores(request, tmp_path):
    yield from make_stores("sqlite", request, tmp_path)


@pytest.mark.parametrize(
    "machine",
    [LedgerMachine, MoveMachine, DeletionMachine],
    ids=["claims", "moves", "deleted guests"],
)
def test_the_ledger_is_right_after_each_step(machine, stores):
    run_state_machine_as_test(lambda: machine(stores.open_empty), settings=SETTINGS)
