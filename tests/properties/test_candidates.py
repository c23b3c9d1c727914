"""The candidates of random fleets on every store, with many examples: ``tox -e properties``."""

import pytest

from tests.contract.candidate_examples import check_examples
from tests.contract.stores import BACKENDS, make_stores

MANY = 300

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(params=BACKENDS)
def stores(request, tmp_path):
    yield from make_stores(request.param, request, tmp_path)


def test_candidates_are_the_nodes_that_would_grant_in_the_weighers_order(stores):
    check_examples(stores, MANY)
