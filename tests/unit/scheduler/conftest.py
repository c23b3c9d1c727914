"""A fleet without nodes."""

import pytest

from tests.unit.scheduler.fakes import FakeFleet


@pytest.fixture
def empty_fleet():
    return FakeFleet()
