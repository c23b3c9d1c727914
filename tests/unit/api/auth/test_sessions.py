"""Sessions of browsers: the cookie's layer, and logins at a server that answers as Keystone."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from oslo_config import cfg

from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.auth.session_cookie import accept_session_cookie
from nodetracker.api.context import SESSION_TOKEN, Login
from nodetracker.errors import AuthenticationError

pytest.importorskip("keystonemiddleware")

SECRET = "s3cret-of-a-user"
TOKEN = "gAAAAtoken-of-a-user"


class Application:
    def __call__(self, environ, start):
        self.environ = dict(environ)
        return []


def call(layer, environ):
    list(layer(environ, lambda *_: None))


class TestCookie:
    def send(self, **environ: str) -> dict:
        application = Application()
        call(accept_session_cookie(application), environ)
        return application.environ

    def test_counts_as_the_header(self):
        environ = self.send(HTTP_COOKIE=f"a=b; nodetracker_session={TOKEN}; c=d")
        assert (environ["HTTP_X_AUTH_TOKEN"], environ[SESSION_TOKEN]) == (TOKEN, TOKEN)

    @pytest.mark.parametrize(
        ("scheme", "public_url"), [("https", None), ("http", "https://api.example.org")]
    )
    def test_under_tls_only_one_that_no_other_host_can_set_counts(self, scheme, public_url):
        for cookie, is_known in (
            (f"nodetracker_session={TOKEN}", False),
            (f"nodetracker_session=x; __Host-nodetracker_session={TOKEN}", True),
        ):
            application = Application()
            environ = {"HTTP_COOKIE": cookie, "wsgi.url_scheme": scheme}
            call(accept_session_cookie(application, public_url), environ)
            assert application.environ.get(SESSION_TOKEN) == (TOKEN if is_known else None)

    def test_a_header_wins(self):
        environ = self.send(HTTP_COOKIE=f"nodetracker_session={TOKEN}", HTTP_X_AUTH_TOKEN="t")
        assert environ["HTTP_X_AUTH_TOKEN"] == "t"
        assert SESSION_TOKEN not in environ

    @pytest.mark.parametrize(
        "cookie", ["", "a=b", "nodetracker_session=", "x_nodetracker_session=t"]
    )
    def test_other_cookies_are_none(self, cookie):
        assert self.send(HTTP_COOKIE=cookie) == {"HTTP_COOKIE": cookie}

    def test_that_has_expired_is_no_wrong_password(self):
        class Rejecting:
            def identify(self, environ):
                raise AuthenticationError("no")

        failures = LoginFailures()
        layer = accept_session_cookie(authenticate(Application(), Rejecting(), failures))
        call(layer, {"HTTP_COOKIE": f"nodetracker_session={TOKEN}"})
        assert failures.count == 0
        call(layer, {"HTTP_X_AUTH_TOKEN": TOKEN})
        assert failures.count == 1


class _Handler(BaseHTTPRequestHandler):
    """What keystoneauth asks of Keystone: versions, a token, its revocation."""

    server: "KeystoneStub"

    def do_GET(self) -> None:
        links = [{"rel": "self", "href": f"{self.server.url}/v3/"}]
        version = {"id": "v3.14", "status": "stable", "links": links}
        self._answer(200, {"version": version})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body["auth"])
        user = body["auth"]["identity"]["password"]["user"]
        if user["password"] != SECRET:
            self._answer(401, {"error": {"code": 401, "message": f"no {SECRET}", "title": "x"}})
            return
        token = {"methods": ["password"], "expires_at": "2030-01-01T00:00:00Z", "user": {}}
        self._answer(201, {"token": token}, {"X-Subject-Token": TOKEN})

    def do_DELETE(self) -> None:
        found = (self.path, self.headers["X-Auth-Token"], self.headers["X-Subject-Token"])
        self.server.deleted.append(found)
        self._answer(self.server.delete_status, None)

    def _answer(self, status: int, body: dict | None, headers: dict | None = None) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *arguments: object) -> None:
        pass


class KeystoneStub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.bodies: list[dict] = []
        self.deleted: list[tuple] = []
        self.delete_status = 204


@pytest.fixture
def keystone() -> Iterator[KeystoneStub]:
    with KeystoneStub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def build(tmp_path):
    from nodetracker.api.auth.keystone_sessions import KeystoneSessions

    def build(url: str):
        conf = cfg.ConfigOpts()
        (tmp_path / "keystone.conf").write_text(
            f"[keystone_authtoken]\nauth_type = password\nauth_url = {url}\nusername = service\n"
            "password = x\nwww_authenticate_uri = http://127.0.0.1:1/\n"
        )
        conf([f"--config-dir={tmp_path}"], default_config_files=[])
        failures = LoginFailures()
        return KeystoneSessions(conf, failures), failures

    return build


@pytest.mark.parametrize("path", ["", "/", "/v3"])
def test_a_login_is_a_token_of_its_project(build, keystone, path):
    sessions, failures = build(keystone.url + path)
    assert sessions.open(Login("alice", "d1", "p1", SECRET), "192.0.2.7") == TOKEN
    [auth] = keystone.bodies
    assert auth["identity"]["password"]["user"] == {
        "name": "alice",
        "domain": {"name": "d1"},
        "password": SECRET,
    }
    assert auth["scope"] == {"project": {"name": "p1", "domain": {"name": "d1"}}}
    assert failures.count == 0
    sessions.close(TOKEN)
    assert keystone.deleted == [("/v3/auth/tokens", TOKEN, TOKEN)]


def test_without_a_project_it_has_system_scope(build, keystone):
    build(keystone.url)[0].open(Login("alice", "d1", None, SECRET), "192.0.2.7")
    assert keystone.bodies[0]["scope"] == {"system": {"all": True}}


def test_a_wrong_password_is_counted(build, keystone, caplog):
    caplog.set_level(logging.DEBUG)
    sessions, failures = build(keystone.url)
    with pytest.raises(AuthenticationError, match="^wrong user, domain, project or password$"):
        sessions.open(Login("alice", "d1", "p1", "guess-1"), "192.0.2.7")
    assert failures.count == 1
    assert "Login failed: user 'alice@d1' from 192.0.2.7" in caplog.messages
    assert SECRET not in caplog.text
    assert "guess-1" not in caplog.text


def test_an_outage_is_logged_and_not_counted(build, caplog):
    caplog.set_level(logging.DEBUG)
    sessions, failures = build("http://127.0.0.1:1/v3")
    with pytest.raises(AuthenticationError, match="^Keystone is unavailable$"):
        sessions.open(Login("alice", "d1", "p1", SECRET), "192.0.2.7")
    assert failures.count == 0
    assert "Keystone: login failed" in caplog.text
    assert SECRET not in caplog.text


def test_a_token_that_is_not_revoked_is_only_logged(build, keystone, caplog):
    caplog.set_level(logging.DEBUG)
    keystone.delete_status = 500
    build(keystone.url)[0].close(TOKEN)
    assert "Keystone: a token was not revoked" in caplog.text
    assert TOKEN not in caplog.text
