"""Candidates on random fleets, compared with an oracle."""

import pytest
from hypothesis import given, settings

from nodetracker.db import candidates
from tests.candidate_fleets import EXAMPLES, check_candidates
from tests.contract.stores import StoreMaker


def check_examples(stores: StoreMaker, examples: int) -> None:
    """Check that many fleets, each in a store without other rows, weighed few nodes at a time."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(**EXAMPLES)
    def check(fleet, wanted, weights, page_size):
        check_candidates(stores.reopen_empty(), fleet, wanted, weights, page_size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "PASS_SIZE", 2)
        check()
