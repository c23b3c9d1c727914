"""The metrics of a REST service: requests, logins, claims, database errors."""

import itertools
import os
import platform
from pathlib import Path

import pytest

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.api.auth.layer import LoginFailures
from nodetracker.api.layers import count_requests
from nodetracker.metrics.api import ApiCounters, ApiMetrics, RequestCounter, StoreErrorCounter
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.errors import ClaimRefusedError, ConflictError, StoreUnavailableError
from tests.builders import Clock
from tests.unit.metrics.fakes import check_with_promtool

GOLDEN = Path(__file__).parents[2] / "golden" / "api-metrics.txt"


class Counted:
    """A service's counters, by a clock that advances 0.02 s whenever it is read."""

    def __init__(self) -> None:
        self.failures = LoginFailures()
        ticks = itertools.count()
        requests = RequestCounter(lambda: next(ticks) * 0.02)
        self.counters = ApiCounters(requests, ClaimCounter(), StoreErrorCounter())
        self.metrics = ApiMetrics("1.2.3", self.counters, self.failures, lambda: True)

    def page(self) -> str:
        text = self.metrics.render_page().decode()
        text = text[: text.index("# HELP process_")]
        return text.replace(f'python="{platform.python_version()}"', 'python="PYTHON"')


@pytest.fixture
def counted():
    return Counted()


def request(counted, path, method="GET", status="200 OK", parts=(b"x",)):
    """Send a request through the layer as a server does; return its body."""

    def application(environ, start):
        start(status, [])
        return parts

    layer = count_requests(application, counted.counters.requests)
    return layer({"PATH_INFO": path, "REQUEST_METHOD": method}, lambda line, headers: None)


def refuse(counted, *checks):
    with pytest.raises(ClaimRefusedError), counted.counters.claims.count():
        raise ClaimRefusedError(["no room"], checks)


def test_the_page_equals_the_golden_file(counted):
    request(counted, "/v1/nodes").close()
    request(counted, "//v2.1/os-hypervisors/7", status="404 Not Found").close()
    request(counted, "/v1/claims", "POST", "409 Conflict").close()
    request(counted, "/container/v1/hosts", "BREW", "405 Method Not Allowed").close()
    request(counted, "/metrics")
    counted.failures.add("eve", "192.0.2.66")
    refuse(counted, AdmissionCheck.RAM, AdmissionCheck.DISK)
    refuse(counted)
    with counted.counters.claims.count():
        pass
    counted.counters.store_errors.add(StoreUnavailableError("away"))
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(counted.page())
    assert counted.page() == GOLDEN.read_text()


def test_promtool_accepts_the_page():
    check_with_promtool(GOLDEN.read_text())


def test_a_request_runs_until_its_body_is_closed(counted):
    closed = []

    class Parts:
        def __iter__(self):
            return iter((b"a", b"b"))

        def close(self):
            closed.append(True)

    body = request(counted, "/v1/nodes", parts=Parts())
    assert list(body) == [b"a", b"b"]
    assert "nodetracker_api_requests_running 1.0" in counted.page()
    body.close()
    assert closed == [True]
    assert "nodetracker_api_requests_running 0.0" in counted.page()


def test_an_application_that_fails_is_an_answer_of_class_5(counted):
    def application(environ, start):
        raise ZeroDivisionError

    layer = count_requests(application, counted.counters.requests)
    with pytest.raises(ZeroDivisionError):
        layer({"PATH_INFO": "/", "REQUEST_METHOD": "GET"}, lambda *_: None)
    line = 'nodetracker_api_requests_total{code="5xx",family="root",method="GET"} 1.0'
    assert line in counted.page()
    assert "nodetracker_api_requests_running 0.0" in counted.page()


def test_the_last_error_of_the_database_ends_by_a_success_or_by_its_age():
    clock = Clock()
    errors = StoreErrorCounter(60.0, clock)
    errors.add(ConflictError("another writer was first"))
    assert errors.error is None
    errors.add(StoreUnavailableError("away"))
    clock.seconds = 60.0
    assert errors.error == "away"
    clock.seconds = 60.1
    assert errors.error is None
    errors.add(StoreUnavailableError("away again"))
    errors.clear()
    assert errors.error is None
