# nodetracker-admission
"""Docker's authorization plugin, which asks nodetracker's agent before a container starts.

    docker_plugin.py SOCKET allow|refuse    serve the socket that systemd passes; the second is for
                                            containers while the agent does not answer
    docker_plugin.py SOCKET wait            until the agent answers

Docker asks twice for each request, and refuses all requests, also those that stop containers,
while its plugin does not answer. Therefore this is a process of its own, in which everything
passes at once but what creates, starts, restarts and updates containers.
"""

import base64
import json
import os
import re
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

ASKED = re.compile(r"/containers/(?:create|(?P<id>.+)/(?P<what>start|restart|update))")
DEADLINE_SECONDS = 2.0
REPORT_SECONDS = 0.5
DONE = {("create", 201), ("update", 200)}
ALLOW = {"Allow": True}
NO_ANSWER = "no answer from nodetracker's agent, and without one no container starts"


def read_question(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return what to ask about a request, None if it passes.

    Args:
        request: as Docker describes it; the body is absent if Docker does not pass it on, as one
            of more than 1 MiB.
    """
    if request.get("RequestMethod") != "POST":
        return None
    target, _, query = request.get("RequestUri", "").partition("?")
    path = unquote(re.sub(r"^\w+://[^/]*", "", target))
    match = ASKED.fullmatch(re.sub(r"^/v[0-9.]+(?=/)", "", path))
    if match is None:
        return None
    if match["what"] in ("start", "restart"):
        return {"driver": "docker", "ask": "start", "id": match["id"]}
    document = decode(request.get("RequestBody"))
    if match["what"] == "update":
        return {"driver": "docker", "ask": "update", "id": match["id"], "document": document}
    name = parse_qs(query).get("name", [""])[0]
    return {"driver": "docker", "ask": "create", "name": name, "document": document}


def decode(body: str | None) -> Any:
    """Return the JSON of a body, None without one, or if an object has a key twice.

    Docker merges the values of such keys; a parser here would see the last one only.
    """
    try:
        return json.loads(base64.b64decode(body or ""), object_pairs_hook=require_unique)
    except (ValueError, RecursionError):
        return None


def require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise ValueError if it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key")
    return found


def decide(body: bytes, path: str, is_allowing: bool) -> dict[str, Any]:
    """Return the answer to a request, before Docker carries it out.

    Args:
        body: the request as Docker describes it. It is empty where Docker repeats a call that
            has failed (20.10), so that nobody knows what is requested.
        path: the agent's socket.
        is_allowing: what to answer without the agent.
    """
    try:
        question = read_question(json.loads(body))
        if question is None:
            return ALLOW
        answer = ask(path, question)
        if answer["outcome"] == "refused":
            return {"Allow": False, "Msg": answer["reason"]}
        is_answered = answer["outcome"] != "unavailable"
    except Exception:  # whatever it is, Docker goes on
        is_answered = False
    return ALLOW if is_answered or is_allowing else {"Allow": False, "Msg": NO_ANSWER}


def report_done(body: bytes, path: str) -> None:
    """Report a container that Docker has created or updated, before its client learns of it."""
    request = json.loads(body)
    question = read_question(request)
    if question is None or (question["ask"], request["ResponseStatusCode"]) not in DONE:
        return
    if question["ask"] == "create":
        question["id"] = decode(request["ResponseBody"])["Id"]
    ask(path, question | {"ask": question["ask"] + "d"}, REPORT_SECONDS)


def send(path: str, question: dict[str, Any]) -> socket.socket:
    """Send a question; returns the connection, on which the answer comes.

    Raises:
        OSError: the socket does not exist, or nothing accepts connections.
    """
    door = socket.socket(socket.AF_UNIX)
    # With a timeout the connection is made without waiting: an error if the agent's queue is full.
    door.settimeout(DEADLINE_SECONDS)
    try:
        door.connect(path)
        door.sendall(json.dumps(question).encode() + b"\n")
    except OSError:
        door.close()
        raise
    return door


def ask(path: str, question: dict[str, Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """Return the agent's answer.

    Raises:
        OSError: there is none within so many seconds.
        ValueError: it is not JSON.
    """
    deadline = time.monotonic() + seconds
    answer = b""
    with send(path, question) as door:
        while not answer.endswith(b"\n"):
            door.settimeout(max(deadline - time.monotonic(), 0.001))
            part = door.recv(65536)
            if not part:
                break
            answer += part
    return json.loads(answer)


def wait(path: str) -> None:
    """Return when the agent answers; whoever calls it limits the time."""
    while True:
        try:
            ask(path, {"ask": "list"})
        except (OSError, ValueError):
            time.sleep(0.2)
        else:
            return


class Handler(BaseHTTPRequestHandler):
    """Answers Docker."""

    protocol_version = "HTTP/1.1"
    server: "Plugin"

    def do_POST(self) -> None:
        """Answer one call of the plugin's API."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer: dict[str, Any] = ALLOW
        if self.path == "/Plugin.Activate":
            answer = {"Implements": ["authz"]}
        elif self.path == "/nodetracker.Requests":
            answer = {"Requests": self.server.requests}
        elif self.path == "/AuthZPlugin.AuthZReq":
            self.server.requests += 1
            answer = decide(body, self.server.path, self.server.is_allowing)
        elif self.path == "/AuthZPlugin.AuthZRes":
            try:
                report_done(body, self.server.path)
            except Exception:  # noqa: S110 - the agent learns of it by its next listing
                pass
        text = json.dumps(answer).encode()
        self.send_response_only(200)
        self.send_header("Content-Type", "application/vnd.docker.plugins.v1.1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


class Plugin(ThreadingHTTPServer):
    """Serves a socket that is listening already.

    Args:
        path: the agent's socket.
        is_allowing: whether containers start while the agent does not answer.

    Attributes:
        requests: number of those that Docker has asked about, by which it is seen whether it does.
    """

    address_family = socket.AF_UNIX

    def __init__(self, listener: socket.socket, path: str, is_allowing: bool) -> None:
        super().__init__("", Handler, bind_and_activate=False)  # type: ignore[arg-type]
        self.socket.close()
        self.socket = listener
        self.path = path
        self.is_allowing = is_allowing
        self.requests = 0

    def service_actions(self) -> None:
        """Notify systemd, every half a second, that requests are accepted."""
        notify("WATCHDOG=1")


def notify(state: str) -> None:
    """Notify systemd, if it asks for that; see sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            try:
                manager.sendto(state.encode(), address.replace("@", "\0", 1))
            except OSError:
                pass  # systemd is being restarted


def main(path: str, action: str) -> None:
    """Carry out one action."""
    if action == "wait":
        wait(path)
        return
    plugin = Plugin(socket.socket(fileno=3), path, action == "allow")  # systemd's first socket
    notify("READY=1")
    plugin.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
