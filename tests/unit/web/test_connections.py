"""Slow clients are disconnected in time, and keep nobody else out."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodetracker.web.connections import Deadlines, Listener
from nodetracker.web.server import Server
from tests.functional.servers.process import find_free_port
from tests.functional.servers.tls import Authority
from tests.programs import wait_until
from tests.settings import make_api_settings

LONG = Deadlines(handshake=60, idle=60, header=60, body=60, send=60)
REQUEST = b"GET / HTTP/1.1\r\nHost: api-1\r\n\r\n"


class Served:
    """A server whose requests to ``/wait`` end when `release` is set."""

    def __init__(self, deadlines=LONG, max_connections=None, answer=b"ok", **settings):
        self.settings = make_api_settings("api-1", port=find_free_port(), **settings)
        self.server = Server(
            self.application, self.settings, deadlines=deadlines, max_connections=max_connections
        )
        self.release, self.called = threading.Event(), threading.Semaphore(0)
        self.answer = answer
        self.clients = contextlib.ExitStack()

    def application(self, environ, start):
        self.called.release()
        if environ["PATH_INFO"] == "/wait":
            assert self.release.wait(60)
        start("200 OK", [("Content-Length", str(len(self.answer)))])
        return [self.answer]

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *details):
        self.clients.close()
        assert self.server.stop(60)

    def connect(self, sent=b""):
        client = socket.create_connection(("127.0.0.1", self.settings.port), timeout=60)
        self.clients.enter_context(client)
        client.sendall(sent)
        return client

    def count_connections(self):
        return len(self.server._server.server_state.connections)

    def get(self):
        """Return the status line of a request."""
        return read(self.connect(REQUEST), until=b"ok")[0]


def read(client, until=None):
    """Return status line and rest of what is received to the end, or to a text."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError, TimeoutError):
        while part := client.recv(65536):
            received += part
            if until is not None and received.endswith(until):
                break
    status, _, rest = bytes(received).partition(b"\r\n")
    return status, rest


@pytest.fixture
def serve() -> Iterator:
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Served(*arguments, **options))


@pytest.mark.parametrize("start", [b"G", REQUEST[:-2]])
def test_a_client_that_stops_before_the_end_of_a_header_is_disconnected(serve, start):
    served = serve(replace(LONG, header=0.05))
    assert read(served.connect(start))[0] == b"HTTP/1.1 408 Request Timeout"


def test_a_client_that_sends_nothing_is_disconnected(serve):
    assert read(serve(replace(LONG, idle=0.05)).connect()) == (b"", b"")


def test_a_header_has_to_end_in_time_however_often_a_part_of_it_arrives(serve):
    served = serve(replace(LONG, header=0.2))
    client = served.connect(b"GET / HTTP/1.1\r\n")
    client.settimeout(0.01)
    answer = b""
    while not answer:
        with contextlib.suppress(TimeoutError):
            answer = client.recv(1000)
        if not answer:
            client.sendall(b"a")  # does not extend its time
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_the_header_of_a_later_request_has_its_time_too(serve):
    served = serve(replace(LONG, header=0.05))
    client = served.connect(REQUEST)
    assert read(client, b"ok")[0] == b"HTTP/1.1 200 OK"
    client.sendall(b"G")
    assert read(client)[0] == b"HTTP/1.1 408 Request Timeout"
    pipelined = served.connect(REQUEST + b"G")
    assert read(pipelined)[1].count(b"HTTP/1.1 408") == 1


def test_an_idle_connection_is_closed_after_its_request(serve):
    served = serve(replace(LONG, idle=0.2))
    # Again: a busy machine may delay the request until the connection is closed.
    wait_until(lambda: read(served.connect(REQUEST))[1].endswith(b"\r\n\r\nok"))


def test_a_request_that_is_carried_out_has_no_deadline(serve):
    served = serve(Deadlines(0.01, idle=0.2, header=0.01, body=0.01, send=0.01))
    clients = []

    def call():
        clients.append(served.connect(REQUEST.replace(b"/", b"/wait", 1)))
        return served.called.acquire(timeout=1)

    wait_until(call)  # again: a busy machine may delay the request until the connection is closed
    assert read(served.connect())[0] == b""
    served.release.set()
    assert any(read(client)[1].endswith(b"ok") for client in clients)


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
def test_a_client_that_does_not_read_its_answer_is_disconnected(serve, ending):
    served = serve(replace(LONG, send=0.05), answer=b"x" * (32 << 20))
    client = served.connect(REQUEST[:-2] + ending + b"\r\n")
    served.called.acquire()
    wait_until(lambda: served.count_connections() == 0)
    assert len(read(client)[1]) < 32 << 20


def test_a_handshake_that_does_not_end_is_disconnected(serve, tmp_path):
    certificate, key = Authority(tmp_path).issue(tmp_path, "127.0.0.1")
    served = serve(replace(LONG, handshake=0.05), cert_file=certificate, key_file=key)
    assert read(served.connect())[0] == b""
    assert read(served.connect(b"\x16\x03"))[0] == b""


@pytest.mark.parametrize(
    "start", [b"", b"G", b"POST" + REQUEST[3:-2] + b"Content-Length: 9\r\n\r\n"]
)
def test_too_many_slow_clients_keep_nobody_out(serve, start, caplog):
    served = serve(max_connections=4)
    slow = [served.connect(start) for _ in range(20)]
    assert served.get() == b"HTTP/1.1 200 OK"
    ended = [read(client)[0] for client in slow[:16]]
    assert set(ended) <= {b"HTTP/1.1 503 Service Unavailable", b""}
    lines = [message for message in caplog.messages if "connections are open" in message]
    assert lines == [
        "4 connections are open, which is the most; closing those that have waited longest "
        "for their clients"
    ]


def test_too_many_handshakes_keep_nobody_out(serve, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    served = serve(max_connections=4, cert_file=certificate, key_file=key)
    slow = [served.connect(b"\x16\x03") for _ in range(20)]
    context = ssl.create_default_context(cafile=authority.certificate)
    with context.wrap_socket(served.connect(), server_hostname="127.0.0.1") as client:
        client.sendall(REQUEST)
        assert read(client, b"ok")[0] == b"HTTP/1.1 200 OK"
    assert [read(client)[0] for client in slow[:16]] == [b""] * 16


def test_the_connection_that_was_used_last_is_kept_longest(serve):
    served = serve(max_connections=4)
    used, silent = served.connect(REQUEST), served.connect(b"G")
    assert read(used, b"ok")[0] == b"HTTP/1.1 200 OK"
    served.connect(b"G")
    served.connect(b"G")
    used.sendall(REQUEST)
    assert read(used, b"ok")[0] == b"HTTP/1.1 200 OK"
    assert served.get() == b"HTTP/1.1 200 OK"
    assert read(silent)[0] == b"HTTP/1.1 503 Service Unavailable"
    used.sendall(REQUEST)
    assert read(used, b"ok")[0] == b"HTTP/1.1 200 OK"


def test_a_client_is_refused_while_all_connections_have_requests(serve):
    served = serve(max_connections=4, threads=4)
    clients = [served.connect(REQUEST.replace(b"/", b"/wait", 1)) for _ in range(4)]
    for _ in clients:
        served.called.acquire()
    assert served.get() == b"HTTP/1.1 503 Service Unavailable"
    served.release.set()
    for client in clients:
        assert read(client, b"ok")[0] == b"HTTP/1.1 200 OK"
    wait_until(lambda: served.get() == b"HTTP/1.1 200 OK")


def test_what_follows_a_request_does_not_prevent_its_answer(serve, caplog):
    served = serve()
    last = REQUEST.replace(b"/", b"/wait", 1)[:-2] + b"Connection: close\r\n\r\n"
    client = served.connect(last + b"no request\r\n\r\n")
    served.called.acquire()
    client.sendall(b"and more\r\n\r\n")
    served.release.set()
    status, rest = read(client)
    assert (status, rest.count(b"HTTP/1.1"), rest[-2:]) == (b"HTTP/1.1 200 OK", 0, b"ok")
    assert [record.getMessage() for record in caplog.records if record.levelno > 30] == []


def test_the_health_is_answered_while_all_threads_are_in_use(serve):
    served = serve(threads=1)
    waiting = served.connect(REQUEST.replace(b"/", b"/wait", 1))
    served.called.acquire()
    probe = served.connect(REQUEST.replace(b"/", b"/health", 1))
    assert read(probe, b"ok")[0] == b"HTTP/1.1 200 OK"
    served.release.set()
    assert read(waiting, b"ok")[0] == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("name", [b"Authorization", b"X-Auth-Token", b"Cookie"])
def test_who_asks_for_the_health_with_credentials_does_not_wait_either(serve, name):
    """They are not checked."""
    served = serve(threads=1)
    served.connect(REQUEST.replace(b"/", b"/wait", 1))
    served.called.acquire()
    probe = served.connect(REQUEST.replace(b"/", b"/health", 1)[:-2] + name + b": x\r\n\r\n")
    probe.settimeout(60)
    assert read(probe, b"ok")[0] == b"HTTP/1.1 200 OK"
    served.release.set()


def test_answers_that_nobody_reads_are_limited_in_all(serve, monkeypatch):
    monkeypatch.setattr(Listener, "max_unread_bytes", 40 << 20)
    served = serve(replace(LONG, idle=0.5), answer=b"x" * (32 << 20))
    clients = [served.connect(REQUEST) for _ in range(3)]
    for _ in clients:
        served.called.acquire()
    wait_until(lambda: served.count_connections() == 1)
    assert sum(len(read(client)[1]) > 32 << 20 for client in clients) == 1
