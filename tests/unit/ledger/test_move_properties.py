"""Moves between two nodes in any order: each end leaves one claim, and no usage is lost."""

from hypothesis import settings

from tests.unit.ledger.move_machine import MoveMachine

TestMoves = MoveMachine.TestCase
TestMoves.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
