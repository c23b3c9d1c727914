"""Broken and slow requests: ``python -m tests.functional.runs.raw_sockets [--auth http_basic]``.

Starts `nodetracker-api` with few file descriptors, sends it broken requests and asks for ``/health``,
beside more slow clients than descriptors for the first half of the time. It ends with 1 when an
answer is a 500, a connection is older than its deadline, ``/health`` takes longer than a second, or
the log has a traceback.
"""

import argparse
import contextlib
import multiprocessing
import random
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bcrypt
import psutil

from tests.functional.servers.process import find_free_port
from tests.programs import Programs

DESCRIPTORS = 96
DEADLINES = {"silent": 30, "header": 10, "body": 10, "unread": 60}
"""Kind of slow client -> seconds after which it has to be disconnected at the latest."""
CROWD, SLOW_CLIENTS, FUZZERS = 100, 20, 4
MARGIN_SECONDS = 3
HEALTH_SECONDS = 1

KEYSTONE = """[keystone_authtoken]
auth_type = password
auth_url = http://127.0.0.1:1/v3
www_authenticate_uri = http://127.0.0.1:1/v3
username = nodetracker
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
"""

HOST = "Host: 127.0.0.1"
LINES = [
    *(f"{method} {path} HTTP/1.1" for method in ("GET", "HEAD", "POST", "PATCH", "DELETE", "BREW")
      for path in ("/health", "/v1/nodes?limit=1", "/v1/claims", "/v1/openapi.json", "/ui/",
                   "/v1/session", "/v2.1/os-hypervisors", "/container/v1/hosts", "/%ff", "/%00", "*",
                   "/v1/nodes?name_part=" + "%25" * 9000, "http://h/v1", "//x", "/v1/workloads/%ff")),
    "GET / HTTP/1.0", "GET / HTTP/9.9", "GET /\xe9 HTTP/1.1", "GET /a b HTTP/1.1", "\x16\x03\x01", "GET",
]  # fmt: skip
HEADERS = [
    HOST, HOST, HOST, "Host: evil.example.org", "Host: \xe9", "Connection: close", "Expect: 100-continue",
    "Content-Length: 5", "Content-Length: 2000000", "Content-Length: -1", "Content-Length: " + "9" * 5000,
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Upgrade: h2c\r\nConnection: upgrade",
    "Content-Type: application/json", "Content-Type: text/plain; charset=\xff", "X-Auth-Token: \xff",
    "Authorization: Basic \xe9", "Authorization: Basic YTpi", "Authorization: Basic YWRtaW46c2VjcmV0", "Authorization: Basic", "X-Auth-Token: a",
    "Cookie: nodetracker_session=\xe9; a=\x80", "If-Match: W/\"x", "If-None-Match: *, \"", "Origin: null",
    "OpenStack-API-Version: compute \xb2.1", "X-OpenStack-Nova-API-Version: 2." + "9" * 5000,
    "Accept-Encoding: gzip;q=x", "X-Forwarded-For: \xe9", "A: " + "b" * 70000, " folded", "none", "a: \x00",
]  # fmt: skip
BODIES = [b"", b"hello", b"{}", b"[" * 100_000, b'{"a":' * 9000, b'"\xed\xa0\x80"', b"5\r\nhello\r\n0\r\n\r\n",
          b"ffffffffffffffffff\r\n", b"zz\r\n", b"\x00" * 2_000_000]  # fmt: skip


class Run:
    """One run against a service."""

    def __init__(
        self, process: psutil.Process, port: int, seconds: float, seed: int, pause: float = 0
    ) -> None:
        self.process = process
        self.port = port
        self.pause = pause
        self.began = time.monotonic()
        self.seconds = seconds
        self.random = random.Random(seed)
        self.failures: list[str] = []
        self.answers: Counter[str] = Counter()
        self.oldest: dict[str, float] = {}
        self.listed: tuple[float, set[int]] = (0.0, set())

    def run(self) -> None:
        """Send everything until the end."""
        kinds = list(DEADLINES) * (CROWD // len(DEADLINES))
        crowd = [(partial(self.hold, kind), self.seconds / 2) for kind in kinds[SLOW_CLIENTS:]]
        few = [(partial(self.hold, kind), self.seconds) for kind in kinds[:SLOW_CLIENTS]]
        others = [self.send_broken] * FUZZERS
        works = [*crowd, *few, *((work, self.seconds) for work in others)]
        threads = [threading.Thread(target=self.repeat, args=work) for work in works]
        ages: multiprocessing.Queue[float] = multiprocessing.Queue()
        asking = multiprocessing.Process(
            target=ask_health, args=(self.port, self.began + self.seconds, ages), daemon=True
        )  # as the threads here wait for each other
        asking.start()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.list_open()
        while age := ages.get():
            self.oldest["health"] = max(age, self.oldest.get("health", 0))
            if age > HEALTH_SECONDS:
                self.failures.append(f"/health took {age:.2f} s")

    def repeat(self, work: Callable[[], None], seconds: float) -> None:
        while time.monotonic() < self.began + seconds:
            work()

    def list_open(self) -> None:
        """List the clients' ports of connections that the service has open."""
        listed_at = time.monotonic()
        found = self.process.net_connections("tcp")
        self.listed = (listed_at, {known.raddr.port for known in found if known.raddr})
        time.sleep(0.5)

    def connect(self, is_small: bool = False) -> socket.socket:
        """Connect, perhaps with buffers at both ends that one answer fills."""
        client = socket.socket()
        client.settimeout(60)
        if is_small:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        client.connect(("127.0.0.1", self.port))
        return client

    def send_broken(self) -> None:
        time.sleep(self.pause)
        choice = self.random.choice
        head = [choice(LINES), *(choice(HEADERS) for _ in range(self.random.randrange(8)))]
        request = "\r\n".join([*head, "", ""]).encode("latin-1") + choice(BODIES)
        request = request[: self.random.choice([None, None, self.random.randrange(1, 200)])]
        port = 0
        try:
            with self.connect() as client:
                port = client.getsockname()[1]
                client.sendall(request * self.random.choice([1, 1, 3]))
                client.shutdown(socket.SHUT_WR)
                status = client.recv(4096)[9:12].decode("latin-1")
        except TimeoutError:  # a client that still sends may not notice that it is closed
            status = "neither answered nor closed" if port in self.listed[1] else "closed"
        except OSError:
            status = "reset"
        self.answers[status] += 1
        if status == "500" or " " in status:
            self.failures.append(f"{status}: {request[:300]!r}")

    def hold(self, kind: str) -> None:
        """Be slow in one way until the service closes the connection."""
        start = f"POST /v1/claims HTTP/1.1\r\n{HOST}\r\n".encode()
        sent = {
            "silent": b"",
            "header": start + b"X: ",
            "body": start + b"Content-Length: 9999\r\n\r\n",
            "unread": f"GET /v1/openapi.json HTTP/1.1\r\n{HOST}\r\n\r\n".encode() * 60,
        }[kind]
        age = 0.0
        with contextlib.suppress(OSError), self.connect(is_small=kind == "unread") as client:
            began = time.monotonic()
            client.sendall(sent)
            if kind == "unread":  # the first answer fills the buffers
                client.recv(1, socket.MSG_PEEK)
                began = time.monotonic()
            client.settimeout(0.5)
            while kind == "unread" or not is_ended(client):
                seen_at = time.monotonic()
                if kind == "unread":  # its end is not received before what is unread
                    time.sleep(1)
                    seen_at, ports = self.listed
                    if seen_at > began + 1 and client.getsockname()[1] not in ports:
                        break
                elif kind != "silent":
                    client.sendall(b"a")
                age = seen_at - began
                if age > DEADLINES[kind] + MARGIN_SECONDS:
                    self.failures.append(f"a slow connection ({kind}) was open for {age:.1f} s")
                    break
                if time.monotonic() > self.began + self.seconds:
                    break
        self.oldest[kind] = max(age, self.oldest.get(kind, 0))
        time.sleep(1)  # it is slow, and no flood of connections


def ask_health(port: int, end: float, ages: "multiprocessing.Queue[float]") -> None:
    """Report how long each answer takes, at last 0; one that failed is asked for again."""
    began = time.monotonic()
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60).close()
            ages.put(time.monotonic() - began)
            time.sleep(0.1)
            began = time.monotonic()
    ages.put(time.monotonic() - began)
    ages.put(0)


def is_ended(client: socket.socket) -> bool:
    """Return whether a connection was closed, after a wait."""
    try:
        while client.recv(4096):
            pass
    except TimeoutError:
        return False
    return True


def main() -> int:
    """Run the service and everything against it; return 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.runs.raw_sockets")
    parser.add_argument("--auth", choices=["noauth", "http_basic", "keystone"], default="noauth")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pause", type=float, default=0, help="of each fuzzer, in seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    port = find_free_port()
    with tempfile.TemporaryDirectory() as place:
        users = Path(place, "htpasswd")
        api = f"[api]\nport = {port}\nauth_strategy = {arguments.auth}\n"
        api += f"http_basic_auth_user_file = {users}\n"
        programs = Programs(Path(place), extra=api + KEYSTONE * (arguments.auth == "keystone"))
        programs.make_schema()
        users.write_text(f"admin:{bcrypt.hashpw(b'secret', bcrypt.gensalt(10)).decode()}\n")
        limit = ("prlimit", f"--nofile={DESCRIPTORS}", "--")
        with programs.start("nodetracker-api", before=limit) as served:
            served.wait_for("Serving on")
            process, seconds = psutil.Process(served.process.pid), arguments.seconds
            run = Run(process, port, seconds, arguments.seed, arguments.pause)
            run.run()
            if served.stop() != 0:
                run.failures.append("the service did not end well")
        log = served.output()
    if "Traceback" in log:
        run.failures.append(log[log.index("Traceback") - 500 :][:5000])
    print(f"seed {arguments.seed}; {len(log.splitlines())} lines of log; answers:", run.answers)
    print("oldest, in seconds:", {kind: round(age, 2) for kind, age in run.oldest.items()})
    for failure, count in Counter(run.failures).most_common(50):
        print(count, failure)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
