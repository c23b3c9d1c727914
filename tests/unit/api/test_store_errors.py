"""What the log has of requests that fail because of the database."""

import logging
import sys
from dataclasses import replace

import pytest

from nodetracker.errors import StoreUnavailableError
from tests.unit.api.conftest import Api

LOGGER = "nodetracker.api.application"


class Recorder(logging.Handler):
    """Keeps messages, and the error that is handled while each is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), sys.exc_info()[0]))


@pytest.fixture
def recorder():
    found = Recorder()
    logging.getLogger(LOGGER).addHandler(found)
    yield found
    logging.getLogger(LOGGER).removeHandler(found)


def test_the_reason_is_in_one_line_once_for_operators_and_never_for_clients(backend, recorder):
    class Broken:
        def __getattr__(self, name):
            raise StoreUnavailableError("db.example.org refuses connections")

    found = Api(replace(backend, store=Broken())).request("GET", "/v1/services")
    assert (found.status_code, "example" in found.text) == (503, False)
    [(line, handled)] = recorder.lines
    request_id = found.headers["X-Openstack-Request-Id"]
    assert line == f"{request_id} GET /v1/services: db.example.org refuses connections"
    assert handled is None  # which the formatter would append
