"""The server of agents: waitress, with limits of its own."""

import contextlib
import logging
import socket
import threading

import pytest

from nodetracker.web import waitress_server as module
from tests.functional.servers.process import skip_or_fail
from tests.programs import wait_until
from tests.threads import no_threads
from tests.unit.metrics.served import Served


@pytest.fixture
def served():
    with Served() as served:
        yield served


def test_a_connection_serves_several_requests(served):
    connection = served.connect()
    for method in ("HEAD", "GET", "HEAD"):
        connection.request(method, "/health")
        assert connection.getresponse().read()[:1] == (b"{" if method == "GET" else b"")
    connection.close()


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
        wait_until(lambda: served.waitress._server.active_channels == {})
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
        served.server.start()
        wait_until(lambda: caplog.messages)
        threads = threading.active_count()
        wait_until(lambda: len(caplog.messages) > 3)
        assert threading.active_count() <= threads
    assert served.request("/health")[0].status == 200
    served.server.stop()
    logged = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert logged == [
        f"Metrics and health: cannot serve on 127.0.0.1 port {port}: "
        "Address already in use; retrying every 0.02 s",
        f"Metrics and health: serving on http://127.0.0.1:{port}",
    ]


def test_a_process_without_a_thread_serves_once_it_has_one(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    for refused in ("waitress-1", "metrics"):
        caplog.clear()
        with no_threads(monkeypatch, refused):
            served = Served()
            served.server.start()
            wait_until(lambda: caplog.messages)
            assert "no thread can be started" in caplog.messages[0]
        wait_until(lambda: len(caplog.messages) > 1)
        assert served.request("/health")[0].status == 200
        served.server.stop()
        assert "serving on" in caplog.messages[1]


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
    return [thread for thread in threading.enumerate() if thread.name == "server-start"]


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
