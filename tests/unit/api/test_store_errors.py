"""What the log has of requests that fail because of the database."""

import logging
import sys
from dataclasses import replace

import pytest

from nodetracker.bootstrap.stores import watch_calls
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.errors import (
    ConflictError,
    SchemaError,
    StoreBusyError,
    StoreUnavailableError,
)
from nodetracker.process.outage import OutageLog
from tests.builders import Clock
from tests.unit.api.conftest import Api

LOGGER = logging.getLogger("nodetracker")


class Recorder(logging.Handler):
    """Keeps messages, and the error that is handled while each is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), sys.exc_info()[0]))


class Faulty:
    """A store of which every call raises an error while there is one."""

    def __init__(self, store, outages) -> None:
        self.store = store
        self.error = None
        self.watch = watch_calls(outages)

    def __getattr__(self, name):
        return lambda *positional, **named: self.watch(
            lambda: self.call(name, *positional, **named)
        )

    def call(self, name, *positional, **named):
        if self.error is not None:
            raise self.error
        return getattr(self.store, name)(*positional, **named)


@pytest.fixture
def recorder():
    found, level = Recorder(), LOGGER.level
    LOGGER.addHandler(found)
    LOGGER.setLevel(logging.INFO)
    yield found
    LOGGER.removeHandler(found)
    LOGGER.setLevel(level)


def test_an_outage_is_two_lines_for_operators_and_none_for_clients(backend, recorder):
    clock = Clock(100.0)
    outages = OutageLog("The database", StoreUnavailableError, LOGGER, clock, 5.0)
    store = Faulty(backend.store, outages)
    api = Api(replace(backend, store=store))
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
        clock.seconds += 10.0
    assert recorder.lines == [  # without the error, which the formatter would append
        ("The database: db.example.org refuses connections", None),
        ("The database is back after 0 s", None),
    ]


@pytest.mark.parametrize(("wait", "is_out"), [("1", False), ("15", True), ("60", True)])
def test_a_time_that_a_client_cuts_short_is_no_outage(backend, wait, is_out):
    outages = OutageLog("The database", StoreUnavailableError, LOGGER)
    store = Faulty(backend.store, outages)
    store.error = StoreUnavailableError("no answer within 1 s")
    found = Api(replace(backend, store=store)).request(
        "GET", "/v1/services", headers={"Prefer": f"wait={wait}"}
    )
    assert (found.status_code, outages.is_out) == (503, is_out)


def test_a_conflict_is_no_outage():
    outages = OutageLog("The database", StoreUnavailableError, LOGGER)
    watch = watch_calls(outages)

    def fail(error):
        def call():
            raise error

        with pytest.raises(type(error)):
            watch(call)

    fail(ConflictError("changed"))
    assert not outages.is_out
    fail(StoreUnavailableError("away"))
    fail(ConflictError("changed"))
    assert outages.is_out
    watch(lambda: None)
    assert not outages.is_out


def test_a_store_watches_its_transactions_and_closing_is_none():
    answers = []

    def watch(call):
        answers.append(call())
        return answers[-1]

    store = open_store(DatabaseSettings("sqlite://"), watch=watch)
    assert [store.now()] == answers
    store.close()
    assert len(answers) == 1
