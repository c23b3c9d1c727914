import logging

import pytest

from nodetracker.model.errors import FencedError, StoreUnavailableError
from nodetracker.process.outage import OutageLog
from tests.builders import Clock


def succeed():
    return None


def failing(error):
    def call():
        raise error

    return call


def test_an_outage_is_logged_once_at_its_start_and_once_at_its_end(caplog):
    caplog.set_level(logging.INFO)
    seconds = iter([100.0, 110.0, 120.0, 142.0])
    log = logging.getLogger("nodetracker.test")
    outage = OutageLog("The database", StoreUnavailableError, log, lambda: next(seconds))
    outage.run("audit", succeed)
    for number in range(3):
        outage.run("audit", failing(StoreUnavailableError(f"refused {number}")))
        assert outage.is_out
    for _ in range(3):
        outage.run("audit", succeed)
        assert not outage.is_out
    assert caplog.messages == ["The database: refused 0", "The database is back after 42 s"]


def test_a_watched_call_returns_its_value_and_raises_its_error(caplog):
    caplog.set_level(logging.INFO)
    outage = OutageLog("The broker", OSError, logging.getLogger("nodetracker.test"))
    for _ in range(2):
        with pytest.raises(OSError, match="refused"):
            outage.watch("connect", failing(OSError("refused")))
    assert outage.watch("connect", lambda: 7) == 7
    assert caplog.messages == ["The broker: refused", "The broker is back after 0 s"]


def test_other_errors_are_not_outages():
    outage = OutageLog("The database", StoreUnavailableError, logging.getLogger("nodetracker.test"))
    with pytest.raises(FencedError):
        outage.run("audit", failing(FencedError("taken")))
    assert not outage.is_out


def test_an_outage_lasts_until_no_activity_fails(caplog):
    caplog.set_level(logging.INFO)
    outage = OutageLog("The database", StoreUnavailableError, logging.getLogger("nodetracker.test"))
    for _ in range(3):
        outage.run("audit", succeed)
        outage.run("heartbeat", failing(StoreUnavailableError("read-only")))
        assert outage.is_out
    outage.run("audit", failing(StoreUnavailableError("read-only")))
    outage.run("heartbeat", succeed)
    assert outage.is_out
    assert outage.error == "read-only"
    outage.run("audit", succeed)
    assert not outage.is_out
    assert outage.error is None
    assert caplog.messages == ["The database: read-only", "The database is back after 0 s"]


def test_failures_between_successes_are_one_outage(caplog):
    caplog.set_level(logging.INFO)
    clock = Clock(100.0)
    log = logging.getLogger("nodetracker.test")
    outage = OutageLog("The database", StoreUnavailableError, log, clock, 5.0)
    for _ in range(3):
        outage.run("request", failing(StoreUnavailableError("refused")))
        assert (outage.is_out, outage.error) == (True, "refused")
        clock.seconds += 4.0
        outage.run("request", succeed)
        assert (outage.is_out, outage.error) == (False, None)
    assert caplog.messages == ["The database: refused"]
    clock.seconds += 60.0
    outage.run("request", succeed)
    outage.run("request", failing(StoreUnavailableError("gone")))
    assert caplog.messages == [
        "The database: refused", "The database is back after 12 s", "The database: gone",
    ]  # fmt: skip


def test_an_outage_by_tls_is_in_words(caplog):
    outage = OutageLog("The broker", OSError, logging.getLogger("nodetracker.test"))
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
    outage.note_failure("connect", OSError(f"{text} (_ssl.c:1006)"))
    words = "certificate verify failed: certificate has expired"
    assert caplog.messages == [f"The broker: {words}"]
    assert outage.error == words
