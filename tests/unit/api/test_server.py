"""The server: its event loop, and connections that it closes."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator
from wsgiref.types import StartResponse

import pytest

from nodetracker.api.server import Server, _Loop
from nodetracker.settings import ApiSettings
from tests.functional.servers.process import find_free_port


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

    with asyncio.Runner(loop_factory=_Loop) as runner:
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


def test_an_answer_that_the_application_cuts_off_is_closed_without_a_line_of_uvicorn_s(
    library_records: list[logging.LogRecord],
) -> None:
    """Who cuts it off has logged why."""

    def application(environ: object, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"["
        raise ConnectionAbortedError("the database failed")

    settings = ApiSettings("api-1", port=find_free_port())
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
