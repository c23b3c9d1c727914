"""What the log has of requests that fail because of the database."""

import logging
import sys
from dataclasses import replace

import pytest

from nodetracker.api import watched_store
from nodetracker.api.watched_store import WatchedStore
from nodetracker.model.errors import (
    ConflictError,
    SchemaError,
    StoreBusyError,
    StoreUnavailableError,
)
from nodetracker.process.outage import OutageLog
from tests.unit.api.conftest import Api

LOGGER = logging.getLogger("nodetracker.api")


class Recorder(logging.Handler):
    """Keeps messages, and the error that is handled while each is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), sys.exc_info()[0]))


class Faulty:
    """A store of which every call raises an error while there is one."""

    def __init__(self, store) -> None:
        self.store = store
        self.error = None

    def __getattr__(self, name):
        if self.error is not None:
            raise self.error
        return getattr(self.store, name)


@pytest.fixture
def recorder():
    found, level = Recorder(), LOGGER.level
    LOGGER.addHandler(found)
    LOGGER.setLevel(logging.INFO)
    yield found
    LOGGER.removeHandler(found)
    LOGGER.setLevel(level)


def test_an_outage_is_two_lines_for_operators_and_none_for_clients(backend, recorder):
    now = [100.0]
    log = logging.getLogger(watched_store.__name__)
    outages = OutageLog("The database", StoreUnavailableError, log, lambda: now[0], 5.0)
    store = Faulty(backend.store)
    api = Api(replace(backend, store=WatchedStore(store, outages)))
    for error in (
        StoreUnavailableError("db.example.org refuses connections"),
        StoreBusyError("db.example.org: all connections are in use"),
        SchemaError("db.example.org: no such table"),
    ):
        store.error = error
        for path in ("/v1/services", "/v1/nodes"):
            found = api.request("GET", path)
            assert (found.status_code, "example" in found.text) == (503, False)
    store.error = None
    for _ in range(3):
        assert api.request("GET", "/v1/services").status_code == 200
        now[0] += 10.0
    assert recorder.lines == [  # without the error, which the formatter would append
        ("The database: db.example.org refuses connections", None),
        ("The database is back after 0 s", None),
    ]


def test_a_conflict_is_no_outage_and_closing_no_answer(backend):
    outages = OutageLog("The database", StoreUnavailableError, LOGGER)
    store = Faulty(backend.store)
    watched = WatchedStore(store, outages)
    store.error = ConflictError("changed")
    with pytest.raises(ConflictError):
        watched.now()
    assert not outages.is_out
    store.error = StoreUnavailableError("away")
    with pytest.raises(StoreUnavailableError):
        watched.now()
    store.error = None
    watched.close()
    assert outages.is_out
    watched.now()
    assert not outages.is_out
