"""Bodies are read before a thread gets the request, and slow clients hold no thread."""

import asyncio
import errno
import json
import socket
import threading
from http import HTTPStatus
from urllib.parse import quote

import pytest
import uvicorn

from nodetracker.api.errors import render_refusal as render_rest_refusal
from nodetracker.web.admission import MAX_BYTES
from nodetracker.web.bodies import BodyReader, ExhaustionGuard, render_refusal
from nodetracker.web.wsgi import WsgiThreads

SCOPE = {"type": "http", "path": "/v1/claims", "headers": []}


class Exchange:
    """One request: messages that arrive, and those that are sent."""

    def __init__(self, *parts: bytes, is_endless: bool = False) -> None:
        self.parts = list(parts)
        self.is_endless = is_endless
        self.received = 0
        self.sent: list[dict] = []
        self.bodies: list[tuple[dict, bytes]] = []

    async def receive(self):
        self.received += 1
        if self.parts:
            part = self.parts.pop(0)
            return {
                "type": "http.request",
                "body": part,
                "more_body": bool(self.parts) or self.is_endless,
            }
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(self, message):
        self.sent.append(message)

    async def application(self, scope, body, gone, send):
        self.bodies.append((dict(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    def run(self, headers=(), **limits):
        options = {
            "max_bytes": 10, "body_seconds": 0.01, "send_seconds": 60,
            "render_refusal": render_rest_refusal,
        } | limits  # fmt: skip
        reader = BodyReader(self.application, **options)
        asyncio.run(reader(SCOPE | {"headers": list(headers)}, self.receive, self.send))
        return self.sent[0]["status"]

    def error(self):
        [error] = json.loads(self.sent[1]["body"])["errors"]
        return error


def test_the_application_gets_the_whole_body_and_its_length():
    exchange = Exchange(b"123", b"45")
    assert exchange.run([(b"transfer-encoding", b"chunked"), (b"host", b"h")]) == 200
    assert exchange.bodies == [({b"host": b"h", b"content-length": b"5"}, b"12345")]


def test_an_answer_that_is_cut_off_has_no_end():
    exchange = Exchange(b"")

    async def fail(scope, body, gone, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[", "more_body": True})
        raise ConnectionAbortedError

    exchange.application = fail
    assert exchange.run() == 200
    assert [message.get("more_body") for message in exchange.sent] == [None, True]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("can't start new thread"), "no thread can be started"),
        (MemoryError(), "no memory is left"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    ],
)
@pytest.mark.parametrize("has_started", [False, True])
def test_what_cannot_be_carried_out_at_a_limit_is_503_or_cut_off(error, reason, has_started):
    noted = []

    async def fail(scope, receive, send):
        if has_started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    exchange = Exchange(b"")
    guard = ExhaustionGuard(fail, render_rest_refusal, noted.append)
    asyncio.run(guard(SCOPE, exchange.receive, exchange.send))
    assert len(noted) == 1
    assert reason in str(noted[0])
    if has_started:
        assert len(exchange.sent) == 1
    else:
        assert exchange.sent[0]["status"] == 503
        assert exchange.error()["code"] == "nodetracker.exhausted"
        assert (b"retry-after", b"5") in exchange.sent[0]["headers"]


def test_other_errors_are_raised():
    async def fail(scope, receive, send):
        raise ZeroDivisionError

    exchange = Exchange(b"")
    guard = ExhaustionGuard(fail, render_rest_refusal, lambda error: None)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(guard(SCOPE, exchange.receive, exchange.send))


def test_a_body_that_does_not_arrive_is_408():
    exchange = Exchange(b"123", is_endless=True)
    assert exchange.run() == 408
    assert exchange.error()["code"] == "nodetracker.http.request_timeout"
    assert exchange.bodies == []
    assert exchange.received == 2  # and nothing more is waited for


@pytest.mark.parametrize("is_endless", [False, True])
def test_a_body_that_is_too_long_is_413_even_without_an_end(is_endless):
    exchange = Exchange(b"1234567890", b"1", is_endless=is_endless)
    assert exchange.run() == 413
    assert exchange.error()["request_id"].startswith("req-")
    assert dict(exchange.sent[0]["headers"])[b"connection"] == b"close"


def test_a_refusal_is_text_unless_the_server_has_another_form():
    exchange = Exchange(b"12345678901")
    assert exchange.run(render_refusal=render_refusal) == 413
    assert exchange.sent[1]["body"] == b"The body has more than 10 bytes."


def test_rest_names_the_option_of_a_limit():
    exchange = Exchange(b"12345678901")
    assert exchange.run() == 413
    assert exchange.error() | {"request_id": ""} == {
        "status": 413, "code": "nodetracker.http.content_too_large", "request_id": "",
        "title": HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase,
        "detail": "The body has more than 10 bytes ([api] max_body_bytes).",
    }  # fmt: skip


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"5")]])
def test_the_limit_of_a_request_is_that_of_its_sender(headers):
    exchange = Exchange(b"123", b"45")
    reader = BodyReader(exchange.application, 10, 1, 1, render_rest_refusal)
    scope = SCOPE | {"headers": headers, MAX_BYTES: 4}
    asyncio.run(reader(scope, exchange.receive, exchange.send))
    assert exchange.sent[0]["status"] == 413
    assert "credentials" in exchange.error()["detail"]
    assert exchange.bodies == []


def test_a_long_body_is_refused_before_it_is_sent_if_the_client_asks():
    exchange = Exchange()
    assert exchange.run([(b"expect", b"100-continue"), (b"content-length", b"11")]) == 413
    assert exchange.received == 0


def test_bodies_that_are_too_long_together_are_503_until_others_are_answered():
    started, release = asyncio.Event(), asyncio.Event()

    async def application(scope, body, gone, send):
        started.set()
        await release.wait()
        await Exchange().application(scope, body, gone, send)

    async def run():
        reader = BodyReader(application, 5, 1, 60, render_rest_refusal, max_held_bytes=12)

        def post(*parts):
            exchange = Exchange(*parts)
            scope = SCOPE | {"headers": []}
            return exchange, asyncio.create_task(reader(scope, exchange.receive, exchange.send))

        first, second = post(b"12345")[1], post(b"12345")[1]
        await started.wait()
        refused, task = post(b"12", b"3")
        await task
        assert refused.sent[0]["status"] == 503
        assert dict(refused.sent[0]["headers"])[b"connection"] == b"close"
        assert refused.error()["code"] == "nodetracker.busy"
        release.set()
        await asyncio.gather(first, second)
        served, task = post(b"12", b"3")
        await task
        assert served.sent[0]["status"] == 200

    asyncio.run(run())


def test_a_body_with_two_lengths_is_refused_and_its_connection_closed():
    """RFC 9112, 6.1: a proxy may have taken the other one for the body's end."""
    exchange = Exchange(b"12")
    assert exchange.run([(b"content-length", b"2"), (b"transfer-encoding", b"chunked")]) == 400
    assert dict(exchange.sent[0]["headers"])[b"connection"] == b"close"
    assert exchange.bodies == []


def test_a_path_reaches_the_application_as_the_bytes_that_were_sent():
    found = []

    def application(environ, start_response):
        found.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return [b""]

    async def run():
        reader = BodyReader(WsgiThreads(application, 1), 10, 60, 60)
        scope = SCOPE | {"method": "GET", "http_version": "1.1", "query_string": b""}
        path = {"path": "/\ufffd\xe9", "raw_path": b"/%FF%c3%a9"}  # as uvicorn decodes it
        exchange = Exchange(b"")
        await reader(scope | path, exchange.receive, exchange.send)

    asyncio.run(run())
    assert found == ["/\xff\xc3\xa9"]


def test_a_client_that_does_not_read_gets_no_more():
    exchange = Exchange(b"")
    sent = exchange.sent

    async def send(message):
        sent.append(message)
        await asyncio.sleep(3600)

    exchange.send = send
    assert exchange.run(send_seconds=0.01) == 200
    assert len(sent) == 1


def test_a_request_whose_client_has_gone_while_it_waited_for_a_thread_is_not_carried_out(
    caplog,
):
    caplog.set_level("INFO")
    started, release, done = threading.Event(), threading.Event(), []

    def application(environ, start_response):
        started.set()
        assert release.wait(60)
        done.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return [b"ok"]

    async def send(message):
        pass

    async def request(path, leaves, method="POST"):
        messages = [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]

        async def receive():
            if len(messages) == 1:
                await leaves.wait()
            return messages.pop(0)

        scope = {"type": "http", "path": path, "method": method, "headers": []}
        scope["raw_path"] = quote(path).encode()
        await reader(scope | {"http_version": "1.1", "query_string": b""}, receive, send)

    async def run():
        never, leaves = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(request("/first", never))
        await asyncio.to_thread(started.wait, 60)
        abandoned = asyncio.create_task(request("/é\nERROR", leaves))
        reading = asyncio.create_task(request("/read", leaves, "GET"))
        waiting = asyncio.create_task(request("/waiting", never))
        for _ in range(10):
            await asyncio.sleep(0)
        leaves.set()
        for _ in range(10):
            await asyncio.sleep(0)
        release.set()
        await asyncio.gather(first, abandoned, reading, waiting)

    reader = BodyReader(WsgiThreads(application, 1), 10, 60, 60)
    asyncio.run(run())
    assert done == ["/first", "/waiting"]
    line = "POST /%C3%A9%0AERROR was not carried out: its client has gone"
    assert [record.message for record in caplog.records if record.levelname != "DEBUG"] == [line]


def test_a_request_that_was_abandoned_while_the_process_was_stopped_is_not_carried_out():
    done = []

    def application(environ, start_response):
        done.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return [b"ok"]

    def send(path):
        client = socket.create_connection(listener.getsockname())
        client.sendall(f"POST {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        return client

    async def run():
        reader = BodyReader(WsgiThreads(application, 1), 10, 60, 60)
        server = uvicorn.Server(uvicorn.Config(reader, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        send("/abandoned").close()  # as the loop does not run meanwhile
        with send("/waiting") as client:
            assert b"200 OK" in await asyncio.to_thread(client.recv, 1000)
        server.should_exit = True
        await serving

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run())
    assert done == ["/waiting"]
