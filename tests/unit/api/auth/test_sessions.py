"""Sessions of browsers: the cookie's layer, and logins at a server that answers as Keystone."""

import logging
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from nodetracker.api.auth.browser import accept_session_cookie
from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.context import SESSION_TOKEN, Login
from nodetracker.model.errors import AuthenticationError
from tests.functional.servers.keystone import PASSWORD, TOKEN, KeystoneStub, serve_keystone

pytest.importorskip("keystonemiddleware")


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


@pytest.fixture
def keystone() -> Iterator[KeystoneStub]:
    with serve_keystone() as server:
        yield server


@pytest.fixture
def build(tmp_path):
    from nodetracker.api.auth.keystone import KeystoneSessions

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
    assert sessions.open(Login("alice", "d1", "p1", PASSWORD), "192.0.2.7") == TOKEN
    [auth] = keystone.bodies
    assert auth["identity"]["password"]["user"] == {
        "name": "alice",
        "domain": {"name": "d1"},
        "password": PASSWORD,
    }
    assert auth["scope"] == {"project": {"name": "p1", "domain": {"name": "d1"}}}
    assert failures.count == 0
    sessions.close(TOKEN)
    assert keystone.deleted == [("/v3/auth/tokens", TOKEN, TOKEN)]


def test_without_a_project_it_has_system_scope(build, keystone):
    build(keystone.url)[0].open(Login("alice", "d1", None, PASSWORD), "192.0.2.7")
    assert keystone.bodies[0]["scope"] == {"system": {"all": True}}


def test_a_wrong_password_is_counted(build, keystone, caplog):
    caplog.set_level(logging.DEBUG)
    sessions, failures = build(keystone.url)
    with pytest.raises(AuthenticationError, match="^wrong user, domain, project or password$"):
        sessions.open(Login("alice", "d1", "p1", "guess-1"), "192.0.2.7")
    assert failures.count == 1
    assert "Login failed: user 'alice@d1' from 192.0.2.7" in caplog.messages
    assert PASSWORD not in caplog.text
    assert "guess-1" not in caplog.text


def test_an_outage_is_logged_and_not_counted(build, caplog):
    caplog.set_level(logging.DEBUG)
    sessions, failures = build("http://127.0.0.1:1/v3")
    with pytest.raises(AuthenticationError, match="^Keystone is unavailable$"):
        sessions.open(Login("alice", "d1", "p1", PASSWORD), "192.0.2.7")
    assert failures.count == 0
    assert "Keystone: login failed" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_token_that_is_not_revoked_is_only_logged(build, keystone, caplog):
    caplog.set_level(logging.DEBUG)
    keystone.delete_status = 500
    build(keystone.url)[0].close(TOKEN)
    assert "Keystone: a token was not revoked" in caplog.text
    assert TOKEN not in caplog.text
