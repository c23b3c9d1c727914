"""Over random fleets every store finds each node that the ledger would grant, in the weighers' order."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from nodetracker.db import candidates
from tests.candidate_fleets import EXAMPLES, check_candidates
from tests.contract.stores import BACKENDS, StoreMaker, make_stores

EXAMPLES_OF = {"sqlite": 20}
EXAMPLES_OF_SERVERS = 2


@pytest.fixture(params=BACKENDS)
def stores(request: pytest.FixtureRequest, tmp_path) -> Iterator[StoreMaker]:
    yield from make_stores(request.param, request, tmp_path)


def check_examples(stores: StoreMaker, examples: int) -> None:
    """Check that many fleets, each in a store without other rows, weighed few nodes at a time."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(**EXAMPLES)
    def check(fleet, wanted, weights, page_size):
        check_candidates(stores.reopen_empty(), fleet, wanted, weights, page_size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "PASS_SIZE", 2)
        check()


def test_candidates_are_the_nodes_that_would_grant_in_the_weighers_order(
    stores: StoreMaker,
) -> None:
    check_examples(stores, EXAMPLES_OF.get(stores.backend, EXAMPLES_OF_SERVERS))
