"""What a test's own code logs, without threads of earlier tests."""

import logging

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
