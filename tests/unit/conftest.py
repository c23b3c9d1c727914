"""What all unit tests share."""

import logging
from collections.abc import Iterator

import pytest


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.startswith("nodetracker")


@pytest.fixture(autouse=True)
def _only_our_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave out what libraries say, whose threads may outlive the test that made them.

    Levels are those of a new process: an earlier test may have run a program in this one.
    """
    caplog.set_level(logging.WARNING)
    caplog.handler.addFilter(_is_ours)
    yield
    caplog.handler.removeFilter(_is_ours)
