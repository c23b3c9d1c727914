import pytest

from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from nodetracker.placement.request_counts import RequestCounts


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "done"),
        (PlacementConflictError, "conflict"),
        (PlacementNotFoundError, "not_found"),
        (PlacementInUseError, "refused"),
        (PlacementNameError, "refused"),
        (PlacementRefusedError, "refused"),
        (PlacementTimeoutError, "unavailable"),
        (PlacementUnavailableError, "unavailable"),
    ],
)
def test_requests_are_counted_by_method_and_outcome(error, outcome):
    counts = RequestCounts()
    for method in ("PUT", "PUT", "GET"):
        counts.count(method, None if error is None else error("PUT /", "no"))
    assert counts.read() == {("PUT", outcome): 2, ("GET", outcome): 1}
