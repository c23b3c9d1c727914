"""WSGI applications behind ASGI: what they get, and how their answers are sent."""

import asyncio
import threading

import pytest

from nodetracker.model.errors import ExhaustedError
from nodetracker.web.wsgi import WsgiThreads, make_environ
from tests.threads import no_threads

SCOPE = {
    "type": "http",
    "method": "POST",
    "http_version": "1.1",
    "scheme": "https",
    "path": "/é",
    "raw_path": b"/%C3%A9",
    "query_string": b"a=1",
    "server": ("::1", 8775),
    "client": ("192.0.2.1", 4711),
    "headers": [(b"content-length", b"2"), (b"x-a", b"1"), (b"x-a", b"2"), (b"content-type", b"t")],
}


def answer(application, sent=None):
    """Return the messages of an answer, and the thread that each was sent by."""
    sent = [] if sent is None else sent

    async def send(message):
        sent.append(message)

    asyncio.run(WsgiThreads(application, 1)(SCOPE, b"{}", threading.Event(), send))
    return sent


def test_an_application_gets_the_request():
    environ = make_environ(SCOPE, b"{}")
    assert environ["wsgi.input"].read() == b"{}"
    wanted = {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/\xc3\xa9", "QUERY_STRING": "a=1",
        "SERVER_NAME": "::1", "SERVER_PORT": "8775", "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_LENGTH": "2", "CONTENT_TYPE": "t", "HTTP_X_A": "1,2", "wsgi.url_scheme": "https",
    }  # fmt: skip
    assert {name: environ[name] for name in wanted} == wanted


def test_an_answer_in_a_list_is_one_message_and_has_its_headers():
    def application(environ, start):
        start("201 Created", [("Location", " /x ")])
        return [b"a", b"b"]

    assert answer(application) == [
        {"type": "http.response.start", "status": 201, "headers": [(b"location", b"/x")]},
        {"type": "http.response.body", "body": b"ab", "more_body": False},
    ]


def test_parts_are_sent_as_they_are_made():
    sent, seen, closed = [], [], []

    def application(environ, start):
        start("200 OK", [])
        try:
            for part in (b"a", b"b"):
                yield part
                seen.append(len(sent))
        finally:
            closed.append(True)

    answer(application, sent)
    assert (seen, closed) == ([2, 3], [True])
    assert [message.get("more_body") for message in sent] == [None, True, True, False]


def test_a_client_that_does_not_read_ends_the_answer():
    made = []

    def application(environ, start):
        start("200 OK", [])
        for part in range(5):
            made.append(part)
            yield b"x"

    async def send(message):
        if message["type"] == "http.response.body":
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        asyncio.run(WsgiThreads(application, 1)(SCOPE, b"", threading.Event(), send))
    assert made == [0]


def count_answers(threads, requests):
    """Return how many of the requests are answered that are sent at once."""
    sent = []

    async def send(message):
        sent.append(message)

    async def ask():
        gone = threading.Event()
        await asyncio.gather(*(threads(SCOPE, b"{}", gone, send) for _ in range(requests)))

    asyncio.run(ask())
    return sum(message["type"] == "http.response.start" for message in sent)


def answer_ok(environ, start):
    start("200 OK", [])
    return [b"ok"]


def test_all_threads_are_there_before_the_first_request(monkeypatch):
    threads = WsgiThreads(answer_ok, 4, {"other": 2})
    threads.start()
    with no_threads(monkeypatch):
        assert count_answers(threads, 8) == 8


def test_a_process_without_threads_does_not_start_but_later(monkeypatch):
    threads = WsgiThreads(answer_ok, 4)
    with no_threads(monkeypatch), pytest.raises(ExhaustedError, match="no thread can be started"):
        threads.start()
    threads.start()
    with no_threads(monkeypatch):
        assert count_answers(threads, 8) == 8
