"""The ledger's properties on every database, with many examples: ``tox -e properties``."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.stores import SQL_BACKENDS, make_stores
from tests.unit.ledger.machine import LedgerMachine
from tests.unit.ledger.move_machine import MoveMachine

SETTINGS = settings(max_examples=200, stateful_step_count=50, deadline=None)

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(params=SQL_BACKENDS)
def stores(request, tmp_path):
    yield from make_stores(request.param, request, tmp_path)


@pytest.mark.parametrize("machine", [LedgerMachine, MoveMachine], ids=["claims", "moves"])
def test_usage_is_what_there_is_after_each_step(machine, stores):
    run_state_machine_as_test(lambda: machine(stores.open_empty), settings=SETTINGS)
