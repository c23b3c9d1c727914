"""What a test's own code logs, without threads of earlier tests."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

_MESSAGING = ("oslo.messaging", "amqp", "kombu")
"""Loggers of libraries whose threads search for brokers that earlier tests have stopped."""


def list_alarming(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return records above INFO that were logged so far."""
    return [
        record
        for record in caplog.records
        if record.levelno > logging.INFO and not record.name.startswith(_MESSAGING)
    ]


@contextlib.contextmanager
def without_messaging() -> Iterator[None]:
    """Keep those threads from writing to the output of a command that runs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _MESSAGING:
            patch.setattr(logging.getLogger(name), "propagate", False)
            patch.setattr(logging.getLogger(name), "handlers", [logging.NullHandler()])
        yield
