"""An HTTP proxy on the loopback interface that counts requests and answers some wrongly."""

import contextlib
import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HUGE_BYTES = 100 * 1024 * 1024


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients are killed, and do not wait for late answers."""


class FaultyProxy:
    """Forwards requests to a port of this machine.

    Args:
        port: the server's.

    Attributes:
        requests: (method, path) of each request, those with faults included.
        fault: returns the fault of a request by its method and path, None = it
            is forwarded; called before that. May wait, so that a request is late.
        after: called after a request was carried out, not refused, before it is answered.
    """

    def __init__(self, port: int) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.after: Callable[[str, str], object] = lambda method, path: None
        self.thawed = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy._handle(self, port)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop serving; frozen requests end."""
        self.thawed.set()
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler, port: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        method, path = handler.command, handler.path
        self.requests.append((method, path))
        fault = self.fault(method, path)
        if fault is None or fault == "lost":
            status, document, kind = _forward(handler, port, body)
            if status < 400:
                self.after(method, path)
            if fault is None:
                return _answer(handler, status, document, kind)
        handler.close_connection = True
        with contextlib.suppress(OSError):  # the client may not wait for it
            self._spoil(handler, fault)
        return None

    def _spoil(self, handler: BaseHTTPRequestHandler, fault: str) -> None:
        if fault == "frozen":
            self.thawed.wait(30)
        elif fault in ("trickling", "trickling headers"):
            if fault == "trickling":
                _answer(handler, 200, b"", "application/json", length=HUGE_BYTES)
            else:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Text:")
            while not self.thawed.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        elif fault == "html":
            _answer(handler, 200, b"<html>Sign in</html>", "text/html")
        elif fault == "half":
            _answer(handler, 200, b'{"resource_prov', "application/json", length=4096)
        elif fault == "huge":
            _answer(handler, 200, b"", "application/json", length=HUGE_BYTES)
            for _ in range(HUGE_BYTES // 2**20):
                handler.wfile.write(b" " * 2**20)
        elif fault == "409":
            document = b'{"errors": [{"code": "placement.concurrent_update", "detail": "late"}]}'
            _answer(handler, 409, document, "application/json")
        elif fault not in ("lost", "closed"):
            _answer(handler, int(fault), b"", "text/plain")


def _forward(handler: BaseHTTPRequestHandler, port: int, body: bytes) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {key: value for key, value in handler.headers.items() if key.lower() != "host"}
    connection.request(handler.command, handler.path, body, headers)
    answer = connection.getresponse()
    document = answer.read()
    connection.close()
    return answer.status, document, answer.headers.get("Content-Type", "")


def _answer(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    kind: str,
    length: int | None = None,
) -> None:
    handler.send_response(status)
    if kind:
        handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()
