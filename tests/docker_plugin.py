"""Run Docker's plugin as systemd does: by its unit, with a socket, restarts and a watchdog."""

import base64
import configparser
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil


def read_unit(path: Path) -> configparser.ConfigParser:
    """Return a unit's sections and options."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


class PluginService:
    """Starts the plugin at the first connection and whenever it ends.

    Args:
        unit: its service; the socket is beside it.
        path: where to listen instead of where the socket's unit says.
    """

    def __init__(self, unit: Path, path: Path) -> None:
        service = read_unit(unit)["Service"]
        self._command = shlex.split(service["ExecStart"])
        assert service["Restart"] == "always"
        self._pause = int(service["RestartSec"].removesuffix("ms")) / 1000
        self._watchdog = int(service["WatchdogSec"])
        assert service["WatchdogSignal"] == "SIGKILL"
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4096)
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = path.with_suffix(".notify")
        self._notified.bind(str(address))
        self._environment = {"NOTIFY_SOCKET": str(address), "LISTEN_FDS": "1"}
        self._is_stopping = False
        self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        listener = self._listener.fileno()
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{listener}; exec "$@"', "bash", *self._command],
            pass_fds=[listener], env=self._environment,
        )  # fmt: skip

    def _supervise(self) -> None:
        notified = time.monotonic()
        while not self._is_stopping:
            self._notified.settimeout(0.02)
            try:
                self._notified.recv(100)
                notified = time.monotonic()
            except TimeoutError:
                pass
            if time.monotonic() - notified > self._watchdog:
                self.process.kill()
                self.process.wait()
            if self.process.poll() is not None and not self._is_stopping:
                time.sleep(self._pause)
                self._start()
                notified = time.monotonic()

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.process.kill()

    def freeze(self) -> None:
        """Suspend the process."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def stop(self) -> None:
        """End it, and remove the socket."""
        self._is_stopping = True
        self._thread.join()
        self.process.kill()
        self.process.wait()
        self._listener.close()
        self._notified.close()
        for path in (self.path, self.path.with_suffix(".notify")):
            path.unlink(missing_ok=True)

    @property
    def memory_mb(self) -> float:
        """Resident memory of the process."""
        return psutil.Process(self.process.pid).memory_info().rss / 2**20


class Client(http.client.HTTPConnection):
    """Calls the plugin as dockerd does."""

    def __init__(self, path: Path) -> None:
        super().__init__("plugin", timeout=20)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))

    def call(self, method: str, request: Any = None) -> dict[str, Any]:
        """Return the plugin's answer to a request, or to a body that describes none."""
        body = request if isinstance(request, str) else json.dumps(request or {})
        self.request("POST", method, body)
        response = self.getresponse()
        assert response.status == 200
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def describe(target: str, body: Any = None, method: str = "POST", **more: Any) -> dict[str, Any]:
    """Return a request as dockerd describes it."""
    request = {"RequestMethod": method, "RequestUri": target, **more}
    if body is not None:
        request["RequestBody"] = encode(body)
    return request


def encode(body: Any) -> str:
    """Return a body as dockerd passes it on."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return base64.b64encode(text).decode()
