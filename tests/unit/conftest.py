"""What all unit tests share."""

import logging
from collections.abc import Iterator

import pytest


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.startswith("nodetracker")


@pytest.fixture(autouse=True)
def _only_our_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave out what libraries say, whose threads may outlive the test that made them."""
    caplog.handler.addFilter(_is_ours)
    yield
    caplog.handler.removeFilter(_is_ours)
