"""Over random fleets every store finds each node that the ledger would grant, in the weighers' order."""

from collections.abc import Iterator

import pytest

from tests.contract.candidate_examples import check_examples
from tests.contract.stores import BACKENDS, StoreMaker, make_stores

EXAMPLES_OF = {"sqlite": 20}
EXAMPLES_OF_SERVERS = 2


@pytest.fixture(params=BACKENDS)
def stores(request: pytest.FixtureRequest, tmp_path) -> Iterator[StoreMaker]:
    yield from make_stores(request.param, request, tmp_path)


def test_candidates_are_the_nodes_that_would_grant_in_the_weighers_order(
    stores: StoreMaker,
) -> None:
    check_examples(stores, EXAMPLES_OF.get(stores.backend, EXAMPLES_OF_SERVERS))
