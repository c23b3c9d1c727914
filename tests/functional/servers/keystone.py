"""What answers as Keystone: versions, tokens of one password, and their revocation."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PASSWORD = "s3cret-of-a-user"
TOKEN = "gAAAAtoken-of-a-user"


class KeystoneStub(ThreadingHTTPServer):
    """A server with one token, of an administrator of the system.

    Attributes:
        bodies: of logins.
        deleted: path, token and revoked token of each revocation.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.bodies: list[dict] = []
        self.deleted: list[tuple] = []
        self.delete_status = 204

    @property
    def options(self) -> str:
        """The configuration of a service that uses it."""
        return (
            f"[keystone_authtoken]\nauth_type = password\nauth_url = {self.url}\n"
            f"www_authenticate_uri = {self.url}\nusername = service\npassword = {PASSWORD}\n"
            "user_domain_name = Default\nsystem_scope = all\n"
        )


class _Handler(BaseHTTPRequestHandler):
    server: KeystoneStub

    def do_GET(self) -> None:
        if self.path.startswith("/v3/auth/tokens"):
            if self.headers["X-Subject-Token"] == TOKEN and not self.server.deleted:
                self._answer(200, {"token": self._describe()})
            else:
                self._answer(404, {"error": {"code": 404, "message": "no token", "title": "x"}})
            return
        links = [{"rel": "self", "href": f"{self.server.url}/v3/"}]
        version = {"id": "v3.14", "status": "stable", "links": links}
        self._answer(200, {"version": version})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body["auth"])
        user = body["auth"]["identity"]["password"]["user"]
        if user["password"] != PASSWORD:
            error = {"code": 401, "message": f"no {PASSWORD}", "title": "x"}
            self._answer(401, {"error": error})
            return
        self._answer(201, {"token": self._describe()}, {"X-Subject-Token": TOKEN})

    def do_DELETE(self) -> None:
        found = (self.path, self.headers["X-Auth-Token"], self.headers["X-Subject-Token"])
        self.server.deleted.append(found)
        self._answer(self.server.delete_status, None)

    def _describe(self) -> dict:
        endpoint = {"id": "e1", "interface": "internal", "url": self.server.url, "region_id": None}
        return {
            "methods": ["password"],
            "issued_at": "2020-01-01T00:00:00Z",
            "expires_at": "2100-01-01T00:00:00Z",
            "user": {"id": "u1", "name": "alice", "domain": {"id": "default", "name": "Default"}},
            "system": {"all": True},
            "roles": [{"id": "r1", "name": "admin"}],
            "catalog": [{"id": "s1", "type": "identity", "endpoints": [endpoint]}],
        }

    def _answer(self, status: int, body: dict | None, headers: dict | None = None) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def serve_keystone() -> Iterator[KeystoneStub]:
    """Serve it in a thread."""
    with KeystoneStub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
