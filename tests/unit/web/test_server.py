"""The server: its event loop, and connections that it closes."""

import asyncio
import contextlib
import errno
import http.client
import logging
import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from nodetracker.api.auth.layer import LoginGate
from nodetracker.api.context import IDENTITY, Identity
from nodetracker.model.errors import AuthenticationError
from nodetracker.web.admission import STRANGER_BYTES
from nodetracker.web.server import Server, _Loop
from tests.functional.servers.process import find_free_port
from tests.settings import make_api_settings


class FullListener(socket.socket):
    """A listener of a process that has no file descriptor left."""

    def accept(self):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_process_without_descriptors_logs_that_once_and_not_at_each_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def connect() -> None:
        listener = FullListener()
        listener.bind(("127.0.0.1", 0))
        async with await asyncio.start_server(lambda *_: None, sock=listener):
            with socket.create_connection(listener.getsockname()):
                async with asyncio.timeout(60):
                    while not caplog.records:
                        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=partial(_Loop, 60)) as runner:
        runner.run(connect())
    assert [record.getMessage() for record in caplog.records] == [
        "No connection can be accepted: Too many open files; retrying every second"
    ]


@pytest.fixture
def library_records() -> Iterator[list[logging.LogRecord]]:
    """What uvicorn logs."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("uvicorn").addHandler(handler)
    yield records
    logging.getLogger("uvicorn").removeHandler(handler)


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
def test_a_request_that_is_broken_in_two_ways_is_answered_once(
    library_records: list[logging.LogRecord], caplog: pytest.LogCaptureFixture, method: bytes
) -> None:
    """By uvicorn, which notices the broken chunk before the reader of bodies runs."""
    settings = make_api_settings("api-1", port=find_free_port())
    server = Server(lambda environ, start: [], settings)
    server.start()
    lengths = b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"
    try:
        with socket.create_connection(("127.0.0.1", settings.port)) as client:
            client.sendall(
                method + b" / HTTP/1.1\r\nHost: api-1\r\n" + lengths + b"\r\nno chunk\r\n"
            )
            answer = b"".join(iter(lambda: client.recv(1000), b""))
    finally:
        assert server.stop(30)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    records = [*library_records, *caplog.records]
    assert [record.getMessage() for record in records if record.levelno > 30] == []


def test_an_answer_that_the_application_cuts_off_is_closed_without_a_line_of_uvicorn_s(
    library_records: list[logging.LogRecord],
) -> None:
    """Who cuts it off has logged why."""

    def application(environ: object, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"["
        raise ConnectionAbortedError("the database failed")

    settings = make_api_settings("api-1", port=find_free_port())
    server = Server(application, settings)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", settings.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: api-1\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(1000), b""))
    finally:
        assert server.stop(30)
    assert answer.endswith(b"1\r\n[\r\n")
    assert [record.getMessage() for record in library_records if record.levelno > 30] == []


@pytest.mark.parametrize("has_early_check", [True, False])
def test_who_is_not_known_sends_small_bodies(has_early_check: bool) -> None:
    """With Keystone a token is checked in a thread, later: there whoever has one is read."""

    async def identify(environ: WSGIEnvironment) -> Identity:
        if environ["HTTP_AUTHORIZATION"] != "right":
            raise AuthenticationError("wrong")
        return Identity("alice")

    def application(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK", [])
        return [str(len(environ["wsgi.input"].read())).encode()]

    def post(size: int, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/claims", b" " * size, headers)
            return connection.getresponse().status

    settings = make_api_settings("api-1", port=find_free_port(), max_body_bytes=2**20)
    early = identify if has_early_check else None
    server = Server(
        application, settings, lambda gated: LoginGate(gated, early, frozenset(), False)
    )
    server.start()
    known = {"Authorization": "right"} if has_early_check else {"X-Auth-Token": "token"}
    try:
        assert post(STRANGER_BYTES, {}) == 200
        for size in (STRANGER_BYTES + 1, 2**20):
            assert post(size, known) == 200
            for headers in ({}, {"Authorization": "wrong"}):
                assert post(size, headers) == 413
    finally:
        assert server.stop(30)


def test_requests_that_wait_for_their_login_hold_no_thread() -> None:
    """Three of them, of a server with one thread."""
    waiting, may_go_on = threading.Semaphore(0), threading.Event()

    def check() -> Identity:
        waiting.release()
        assert may_go_on.wait(60)
        return Identity("eve")

    async def identify(environ: object) -> Identity:
        return await asyncio.to_thread(check)

    def application(environ: WSGIEnvironment, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        identity = environ["asgi.scope"].get(IDENTITY)
        yield identity.user_id.encode() if identity else b"open"

    def send(**headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/", headers=headers)
        return connection

    port = find_free_port()
    settings = make_api_settings("api-1", listen="127.0.0.1", port=port, threads=1)
    server = Server(
        application, settings, lambda gated: LoginGate(gated, identify, frozenset(), False)
    )
    server.start()
    try:
        guessers = [send(Authorization="Basic x") for _ in range(3)]
        for _ in guessers:
            assert waiting.acquire(timeout=60)
        assert send().getresponse().read() == b"open"
        may_go_on.set()
        assert {guesser.getresponse().read() for guesser in guessers} == {b"eve"}
    finally:
        may_go_on.set()
        server.stop(1)
