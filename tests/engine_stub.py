"""Stub of a container engine: serves prepared answers of Docker's API on a unix socket.

For answers that no real engine can be made to return; real engines have separate tests.
"""

import copy
import json
import queue
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

INFO: dict[str, Any] = {
    "ID": "XVH6",
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "xfs"]],
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "Architecture": "x86_64",
    "NCPU": 4,
    "DockerRootDir": "/var/lib/docker",
    "Name": "host-1",
    "Labels": ["rack=7"],
    "ServerVersion": "24.0.7",
    "Runtimes": {"runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
}
VERSION: dict[str, Any] = {
    "ApiVersion": "1.43",
    "MinAPIVersion": "1.12",
    "Components": [{"Name": "Engine", "Version": "24.0.7"}],
}


def describe_container(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Return the answer for one running container; keywords change its HostConfig."""
    return {
        "Id": f"{number:064x}",
        "Name": f"/web-{number}",
        "Created": f"2026-01-01T00:00:{number:02d}Z",
        "State": {"Status": "running", "Pid": 0},
        "Config": {"Image": "bb", "Labels": {}},
        "HostConfig": {"Memory": 64 << 20, "NanoCpus": 500_000_000} | changes,
    }


class EngineStub:
    """The stub; its attributes are its answers.

    Attributes:
        requests: requested paths, without the version.
        queries: path -> query string of its last request.
        statuses: path -> (status, text) to answer instead.
        texts: path -> body to answer instead.
        is_open: while cleared, requests are not answered.
        is_slow_with: paths that are not answered before the stub is stopped.
        counters: container id -> answer to its statistics.
        names: container id -> its names in the list, if links give it more names.
    """

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "stub.sock"
        self.url = f"unix://{self.socket}"
        self.info: Any = copy.deepcopy(INFO)
        self.version: Any = copy.deepcopy(VERSION)
        self.containers: dict[str, dict[str, Any]] = {}
        self.counters: dict[str, Any] = {}
        self.names: dict[str, list[str]] = {}
        self.disk_use: Any = {"LayersSize": 5 << 20, "Images": []}
        self.requests: list[str] = []
        self.queries: dict[str, str] = {}
        self.statuses: dict[str, tuple[int, str]] = {}
        self.texts: dict[str, str] = {}
        self.is_slow_with: set[str] = set()
        self.is_stopped = threading.Event()
        self.is_open = threading.Event()
        self.is_open.set()
        self._streams: list[queue.Queue[bytes | None]] = []
        self._server: _Server | None = None
        self.start()

    def start(self) -> None:
        """Start serving."""
        self.is_stopped.clear()
        self.socket.unlink(missing_ok=True)
        self._server = _Server(str(self.socket), self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop serving; streams end."""
        self.is_stopped.set()
        self.end_streams()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def add(self, *descriptions: dict[str, Any]) -> None:
        """Add containers."""
        self.containers |= {item["Id"]: item for item in descriptions}

    def send_event(self, event: Any) -> None:
        """Send an event to all open streams."""
        for stream in self._streams:
            stream.put(json.dumps(event).encode() + b"\n")

    def end_streams(self) -> None:
        """End the streams abruptly, as a daemon that is killed does."""
        for stream in self._streams:
            stream.put(None)
        self._streams.clear()

    def listen(self) -> "queue.Queue[bytes | None]":
        """Return the queue of a new stream."""
        stream: queue.Queue[bytes | None] = queue.Queue()
        self._streams.append(stream)
        return stream

    def hold(self, path: str) -> None:
        """Wait until a path may be answered."""
        self.is_open.wait()
        if path in self.is_slow_with:
            self.is_stopped.wait()

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the answer for a path."""
        if path in self.statuses:
            status, text = self.statuses[path]
            return status, {"message": text}
        if path == "/_ping":
            return 200, "OK"
        if path == "/info":
            return 200, self.info
        if path == "/version":
            return 200, self.version
        if path == "/system/df":
            return 200, self.disk_use
        if path == "/containers/json":
            return 200, [
                {
                    "Id": key,
                    "Names": self.names.get(key) or [item.get("Name")],
                    "State": _state(item),
                    "Status": f"Up 2 minutes ({_health(item)})",
                }
                for key, item in self.containers.items()
            ]
        found = re.fullmatch(r"/containers/([0-9a-z]+)/(json|stats)", path)
        if found and found[1] in self.containers:
            answers = self.containers if found[2] == "json" else self.counters
            return 200, answers.get(found[1], {})
        return 404, {"message": "no such thing"}


def _state(description: dict[str, Any]) -> Any:
    state = description.get("State")
    return state.get("Status") if isinstance(state, dict) else None


def _health(description: dict[str, Any]) -> str:
    state = description.get("State")
    health = state.get("Health") if isinstance(state, dict) else None
    return str(health["Status"]) if health else ""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, stub: EngineStub) -> None:
        self.stub = stub
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base's name
        """Do not log."""

    def do_GET(self) -> None:
        """Serve a request."""
        stub = self.server.stub
        path = re.sub(r"^/v[0-9.]+", "", self.path.partition("?")[0])
        stub.requests.append(path)
        stub.queries[path] = self.path.partition("?")[2]
        stub.hold(path)
        if stub.is_stopped.is_set():  # drop connections that are still open
            self.close_connection = True
            return
        if path == "/events" and path not in stub.statuses:
            self._stream(stub.listen())
            return
        status, answer = stub.answer(path)
        body = stub.texts.get(path, json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if isinstance(stub.version, dict) and stub.version.get("ApiVersion"):
            self.send_header("Api-Version", str(stub.version["ApiVersion"]))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, pieces: "queue.Queue[bytes | None]") -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while (piece := pieces.get()) is not None:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True
