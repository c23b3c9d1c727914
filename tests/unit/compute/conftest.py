"""The clock of the tests of audits."""

import pytest

from tests.unit.compute.tracked_host import TickingClock


@pytest.fixture
def clock():
    return TickingClock()
