"""A thousand broken or slow clients of a REST service at once: ``tox -e properties``.

Random ones are sent by `tests.functional.runs.raw_sockets`.
"""

import contextlib
import random
import resource
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until

CONNECTIONS = 1_000
HEALTH_SECONDS = 2.0
QUEUE_SECONDS = 20.0
"""Where each client has a request that is carried out, before the one that is asked."""

MEMORY = 200 * 2**20
"""Bytes that they may take together."""

HEAD = b"POST /v1/claims HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\n"
GET = b"GET /v1/nodes?limit=1 HTTP/1.1\r\nHost: api\r\n\r\n"
SENT = {
    "silent": b"",
    "a line without an end": b"GET /" + b"a" * 60_000,
    "a header without an end": HEAD + b"X: " + b"b" * 60_000,
    "a body that does not come": HEAD + b"Content-Length: 9999\r\n\r\n{",
    "a chunk that does not come": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n{",
    "bad chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk of any size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 15 + b"\r\n" + b"x" * 9999,
    "a body of any size": HEAD + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n" + b"x" * 60_000,
    "pipelined": GET * 50,
    "no HTTP": b"\x16\x03\x01\x02\x00\x01" * 9000,
}  # fmt: skip

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[psutil.Process, int]]:
    port = find_free_port()
    programs = Programs(tmp_path, extra=f"[api]\nport = {port}\nauth_strategy = noauth\n")
    programs.make_schema()
    with programs.start("nodetracker-api") as served:
        served.wait_for("Serving on")
        yield psutil.Process(served.process.pid), port
        assert served.stop() == 0
    log = served.output()
    assert "Traceback" not in log
    assert len(log.splitlines()) < 100, log


def ask_health(port: int) -> float:
    """Return how many seconds a good request takes."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        assert answer.status == 200
    return time.monotonic() - began


@pytest.mark.parametrize("kind", [*SENT, "all of these"])
def test_a_thousand_clients_at_once_keep_nobody_out(
    api: tuple[psutil.Process, int], kind: str
) -> None:
    process, port = api
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    ask_health(port)
    before = process.memory_info().rss
    ages, peak = [], 0
    with contextlib.ExitStack() as clients:
        for number in range(CONNECTIONS):
            client = clients.enter_context(contextlib.closing(socket.socket()))
            client.settimeout(10)
            sent = SENT[kind] if kind in SENT else random.Random(number).choice(list(SENT.values()))
            with contextlib.suppress(OSError):
                client.connect(("127.0.0.1", port))
                client.setblocking(False)
                client.send(sent)
            if number % 100 == 99:
                ages.append(ask_health(port))
                peak = max(peak, process.memory_info().rss)
    assert max(ages) < (QUEUE_SECONDS if kind == "pipelined" else HEALTH_SECONDS)
    assert peak - before < MEMORY
    wait_until(lambda: len(process.net_connections("tcp")) < 10)
    assert ask_health(port) < HEALTH_SECONDS
