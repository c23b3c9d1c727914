"""In any order of events the ledger neither oversells nor loses usage."""

from hypothesis import settings

from tests.unit.ledger.machine import LedgerMachine

TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
