"""The server's event loop."""

import asyncio
import errno
import os
import socket

import pytest

from nodetracker.api.server import _Loop


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
