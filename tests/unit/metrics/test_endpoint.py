import contextlib
import dataclasses
import gzip
import http.client
import json
import logging
import socket
import threading

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from nodetracker.metrics import endpoint as module
from nodetracker.metrics.endpoint import Endpoint, make_application
from nodetracker.views.health import evaluate_health
from tests.functional.servers.process import find_free_port, skip_or_fail
from tests.programs import wait_until
from tests.unit.metrics.fakes import REPORT, STATUS, FakeAgentMetrics


class Served(FakeAgentMetrics):
    """Fake agent metrics served on a real address."""

    def __init__(self, listen="127.0.0.1", port=None, retry_seconds=0.02, **limits):
        super().__init__()
        self.audits.audited(REPORT)
        self.listen = listen
        self.port = port or find_free_port()
        application = make_application(self.metrics.registry, lambda: evaluate_health(self.status))
        self.endpoint = Endpoint(application, listen, self.port, retry_seconds, **limits)

    def __enter__(self):
        self.endpoint.start()
        return self

    def __exit__(self, *details):
        self.endpoint.stop()

    def connect(self):
        wait_until(self.is_open)
        return http.client.HTTPConnection(self.listen, self.port, timeout=60)

    def is_open(self):
        try:
            socket.create_connection((self.listen, self.port)).close()
        except OSError:
            return False
        return True

    def request(self, path, method="GET", **headers):
        """Return the response and its body."""
        connection = self.connect()
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body


@pytest.fixture
def served():
    with Served() as served:
        yield served


def names(families):
    return {family.name for family in families}


def test_metrics_are_text_by_default(served):
    response, body = served.request("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "nodetracker_node_guests" in names(parse_text(body.decode()))


def test_metrics_are_openmetrics_on_request(served):
    response, body = served.request(
        "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.1"
    )
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "nodetracker_node_guests" in names(parse_openmetrics(body.decode()))


def test_metrics_are_compressed_if_the_client_accepts_it(served):
    response, body = served.request("/metrics", **{"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert "nodetracker_node_guests" in names(parse_text(gzip.decompress(body).decode()))


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"audit": dataclasses.replace(STATUS.audit, nodes={})}, 200, "pass"),
        ({}, 200, "warn"),
        ({"database_error": "away"}, 503, "fail"),
    ],
)
def test_the_status_of_health_shows_whether_the_agent_works(served, changes, code, status):
    served.status = dataclasses.replace(STATUS, **changes)
    response, body = served.request("/health")
    assert (response.status, json.loads(body)["status"]) == (code, status)
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", ["/metrics", "/health", "/"])
def test_head_is_the_same_without_a_body(served, path):
    whole, body = served.request(path)
    response, nothing = served.request(path, "HEAD")
    assert (response.status, nothing) == (whole.status, b"")
    assert int(response.headers["Content-Length"]) == pytest.approx(len(body), abs=50)


def test_a_connection_serves_several_requests(served):
    connection = served.connect()
    for method in ("HEAD", "GET", "HEAD"):
        connection.request(method, "/health")
        assert connection.getresponse().read()[:1] == (b"{" if method == "GET" else b"")
    connection.close()


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz", "/favicon.ico"])
def test_any_other_path_is_an_error_that_names_the_pages(served, path):
    response, body = served.request(path)
    assert (response.status, body) == (
        404,
        b"Not Found: available pages are /metrics and /health\n",
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_any_other_method_is_refused(served, method):
    response, body = served.request("/health", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert body == b"Method Not Allowed: use GET, HEAD\n"


def test_no_server_is_named(served):
    assert served.request("/health")[0].headers["Server"] is None


def test_silent_and_slow_clients_block_nobody(served):
    served.connect()
    silent = [socket.create_connection((served.listen, served.port)) for _ in range(200)]
    for number, client in enumerate(silent):
        client.sendall(b"GET /metrics HTTP/1.1\r\n"[: number % 20])  # never sent in full
    deaf = [socket.create_connection((served.listen, served.port)) for _ in range(10)]
    for client in deaf:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 10)  # never read
    assert served.request("/health")[0].status == 200
    for client in silent + deaf:
        client.close()


@pytest.fixture
def checked_often(monkeypatch):
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.01)


def receive_all(client):
    """Return what is received until the connection is closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            received += part
    return received


@pytest.mark.usefixtures("checked_often")
def test_the_connection_of_a_silent_client_is_closed():
    with Served(idle_seconds=0.05) as served:
        served.connect()
        with socket.create_connection((served.listen, served.port), timeout=60) as silent:
            assert receive_all(silent) == b""


def trickle(client):
    for _ in range(6000):
        client.sendall(b"a")
        with contextlib.suppress(TimeoutError):
            client.recv(65536)


@pytest.mark.usefixtures("checked_often")
def test_a_request_has_to_end_in_time_however_often_a_part_of_it_arrives():
    with Served(request_seconds=0.2) as served:
        served.connect()
        with socket.create_connection((served.listen, served.port), timeout=0.01) as client:
            client.sendall(b"GET /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n")
            with pytest.raises(ConnectionError):
                trickle(client)


def is_healthy(served):
    """Return whether it answers; a busy machine may delay a request until the idle time is over."""
    with contextlib.suppress(ConnectionError):
        return served.request("/health")[0].status == 200
    return False


@pytest.mark.usefixtures("checked_often")
def test_clients_that_send_many_requests_and_read_no_answer_are_disconnected():
    with Served(idle_seconds=0.2) as served:
        served.connect()
        many = b"GET /metrics HTTP/1.1\r\n\r\n" * 5000
        deaf = [socket.create_connection((served.listen, served.port)) for _ in range(4)]
        for client in deaf:
            with contextlib.suppress(ConnectionError):
                client.sendall(many)
        wait_until(lambda: is_healthy(served))
        wait_until(lambda: served.endpoint._server.active_channels == {})
        for client in deaf:
            client.close()


@pytest.mark.parametrize("start", [b"", b"G"])
def test_too_many_slow_clients_keep_nobody_out(start):
    with Served(max_connections=4) as served:
        served.connect()
        slow = [socket.create_connection((served.listen, served.port)) for _ in range(20)]
        for client in slow:
            with contextlib.suppress(ConnectionError):
                client.sendall(start)
        assert served.request("/health")[0].status == 200
        assert [receive_all(client) for client in slow[:16]] == [b""] * 16
        for client in slow:
            client.close()


def test_a_port_in_use_is_logged_once_and_served_once_it_is_free(caplog):
    caplog.set_level(logging.DEBUG)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = Served(port=port)
        served.endpoint.start()
        wait_until(lambda: caplog.messages)
        threads = threading.active_count()
        wait_until(lambda: len(caplog.messages) > 3)
        assert threading.active_count() <= threads
    assert served.request("/health")[0].status == 200
    served.endpoint.stop()
    logged = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert logged == [
        f"Metrics and health: cannot serve on 127.0.0.1 port {port}: "
        "Address already in use; retrying every 0.02 s",
        f"Metrics and health: serving on http://127.0.0.1:{port}",
    ]


def test_an_address_that_does_not_exist_is_logged(caplog):
    with Served("192.0.2.1") as served:
        wait_until(lambda: caplog.messages)
        reason = f"on 192.0.2.1 port {served.port}: Cannot assign requested address"
        assert reason in caplog.messages[0]


def test_ipv6_is_served(caplog):
    caplog.set_level(logging.INFO)
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        skip_or_fail("needs ::1")
    with Served("::1") as served:
        assert served.request("/health")[0].status == 200
        assert caplog.messages == [f"Metrics and health: serving on http://[::1]:{served.port}"]


def list_threads():
    return [thread for thread in threading.enumerate() if thread.name == "metrics"]


def test_the_end_frees_the_address_and_ends_the_threads():
    before = threading.active_count()
    with Served() as served, socket.create_connection(("127.0.0.1", served.connect().port)):
        assert served.request("/health")[0].status == 200
    assert not served.is_open()
    wait_until(lambda: threading.active_count() <= before)


def test_it_can_be_stopped_while_it_waits_for_its_address(caplog):
    with Served("192.0.2.1", retry_seconds=3600):
        wait_until(lambda: "retrying every 3600 s" in caplog.text)
    wait_until(lambda: not list_threads())  # before the next retry


def test_requests_are_not_logged(caplog):
    caplog.set_level(logging.INFO)
    with Served() as served:
        served.request("/health")
        served.request("/nowhere")
    assert [record.name for record in caplog.records] == [module.__name__]
