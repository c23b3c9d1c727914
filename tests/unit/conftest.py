"""What all unit tests share."""

import logging
from collections.abc import Iterator

import pytest

MESSAGING = ("oslo.messaging", "amqp")


def _is_kept(record: logging.LogRecord) -> bool:
    return not record.name.startswith(MESSAGING)


@pytest.fixture(autouse=True)
def _no_messaging_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave out what the messaging library says whose threads outlive other tests' brokers."""
    caplog.handler.addFilter(_is_kept)
    yield
    caplog.handler.removeFilter(_is_kept)
