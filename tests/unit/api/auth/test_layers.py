"""The layers around the application, and the strategies without credentials."""

from typing import Any

import pytest
from keystonemiddleware.auth_token._request import _AuthTokenRequest
from oslo_config import cfg

from nodetracker.api.auth.browser import is_foreign_page
from nodetracker.api.auth.headers import drop_identity_headers
from nodetracker.api.auth.keystone import KeystoneAuthenticator, register_options
from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.auth.noauth import NoauthAuthenticator
from nodetracker.api.context import IDENTITY, Identity
from nodetracker.errors import AuthenticationError, ForbiddenError

IDENTITY_HEADERS = [
    "X-Roles", "X-Role", "X-User", "X-User-Id", "X-User-Name", "X-User-Domain-Id",
    "X-User-Domain-Name", "X-Project-Id", "X-Project-Name", "X-Project-Domain-Id",
    "X-Project-Domain-Name", "X-Domain-Id", "X-Domain-Name", "X-Tenant", "X-Tenant-Id",
    "X-Tenant-Name", "X-Identity-Status", "X-Is-Admin-Project", "X-Service-Roles",
    "X-Service-User-Id", "X-Service-Identity-Status", "X-Service-Catalog",
    "OpenStack-System-Scope",
]  # fmt: skip


def environ_key(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


def call(layer: Any, environ: dict[str, Any]) -> None:
    list(layer(environ, lambda *_: None))


class Application:
    def __init__(self) -> None:
        self.environ: dict[str, Any] = {}

    def __call__(self, environ, start):
        self.environ = dict(environ)
        return []


@pytest.mark.parametrize("header", IDENTITY_HEADERS)
def test_identity_headers_of_clients_are_dropped(header):
    application = Application()
    call(drop_identity_headers(application), {environ_key(header): "admin", "HTTP_X_OTHER": "1"})
    assert application.environ == {"HTTP_X_OTHER": "1"}


def test_every_header_that_keystonemiddleware_sets_is_dropped():
    names = set(_AuthTokenRequest({})._all_auth_headers())
    names.add(_AuthTokenRequest._SYSTEM_SCOPE_HEADER)
    assert names <= set(IDENTITY_HEADERS) | {
        f"X-Service-{name[2:]}" for name in IDENTITY_HEADERS if name.startswith("X-")
    }
    application = Application()
    call(drop_identity_headers(application), {environ_key(name): "x" for name in names})
    assert application.environ == {}


@pytest.mark.parametrize("token", ["X-Auth-Token", "X-Service-Token", "Authorization"])
def test_credentials_are_not_dropped(token):
    application = Application()
    call(drop_identity_headers(application), {environ_key(token): "t"})
    assert application.environ == {environ_key(token): "t"}


class Rejecting:
    def identify(self, environ):
        raise AuthenticationError("no")


def test_wrong_credentials_are_counted_and_missing_ones_are_not():
    application, failures = Application(), LoginFailures()
    layer = authenticate(application, Rejecting(), failures)
    call(layer, {})
    assert failures.count == 0
    call(layer, {"HTTP_AUTHORIZATION": "Basic x"})
    call(layer, {"HTTP_X_AUTH_TOKEN": "x"})
    assert failures.count == 2
    assert isinstance(application.environ[IDENTITY], AuthenticationError)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8774", "127.0.0.1:8774", "127.8.8.8", "[::1]:8774", "api.example.org"],
)
def test_noauth_accepts_loopback_s_names_and_the_public_one(host):
    strategy = NoauthAuthenticator("https://API.example.org:443/x")
    identity = strategy.identify({"HTTP_HOST": host, "REMOTE_ADDR": "127.0.0.1"})
    assert identity.roles == {"admin", "reader"}
    assert identity.is_system


@pytest.mark.parametrize(
    "host",
    ["", "evil.example.org", "localhost.evil.org:8774", "127.0.0.1.evil.org", "10.0.0.1", "[::2]"],
)
@pytest.mark.parametrize("public_url", [None, "https://api.example.org"])
def test_noauth_refuses_other_names_as_of_a_page_by_dns_rebinding(host, public_url):
    strategy = NoauthAuthenticator(public_url)
    with pytest.raises(ForbiddenError):
        strategy.identify({"HTTP_HOST": host, "REMOTE_ADDR": "127.0.0.1"})


def test_noauth_refuses_requests_that_do_not_come_over_loopback():
    strategy = NoauthAuthenticator()
    with pytest.raises(ForbiddenError):
        strategy.identify({"HTTP_HOST": "localhost", "REMOTE_ADDR": "10.0.0.9"})
    for address in ("::1", "::ffff:127.0.0.1", ""):
        assert strategy.identify({"HTTP_HOST": "localhost", "REMOTE_ADDR": address})


def test_a_confirmed_token_is_an_identity():
    pytest.importorskip("keystonemiddleware")
    environ = {
        "HTTP_X_IDENTITY_STATUS": "Confirmed",
        "HTTP_X_USER_ID": "u1",
        "HTTP_X_PROJECT_ID": "p1",
        "HTTP_X_USER_NAME": "Müller",
        "HTTP_X_ROLES": "member, reader,",
    }
    identity = KeystoneAuthenticator().identify(environ)
    roles = frozenset(("member", "reader"))
    assert identity == Identity("u1", "p1", roles, user_name="Müller")
    environ |= {"HTTP_OPENSTACK_SYSTEM_SCOPE": "all", "HTTP_X_PROJECT_ID": ""}
    assert KeystoneAuthenticator().identify(environ).is_system
    assert KeystoneAuthenticator().identify(environ).project_id is None


@pytest.mark.parametrize("environ", [{}, {"HTTP_X_IDENTITY_STATUS": "Invalid"}])
def test_any_other_token_is_not(environ):
    pytest.importorskip("keystonemiddleware")
    with pytest.raises(AuthenticationError):
        KeystoneAuthenticator().identify(environ)


def test_keystone_is_not_waited_for_without_end():
    pytest.importorskip("keystonemiddleware")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    register_options(conf)
    assert conf.keystone_authtoken.http_connect_timeout == 10


OWN = {"wsgi.url_scheme": "https", "HTTP_HOST": "api.example.org"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HTTP_SEC_FETCH_SITE": "same-origin"},
        {"HTTP_SEC_FETCH_SITE": "none"},
        {"HTTP_ORIGIN": "https://api.example.org"},
        {"HTTP_ORIGIN": "https://API.example.org:443"},
        {"HTTP_ORIGIN": "http://front.example.org:8080"},
    ],
)
def test_clients_and_own_pages_are_not_foreign(headers):
    assert not is_foreign_page(OWN | headers, "http://front.example.org:8080/")


@pytest.mark.parametrize(
    "headers",
    [
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
        {"HTTP_SEC_FETCH_SITE": ""},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": ""},
        {"HTTP_ORIGIN": "http://api.example.org"},
        {"HTTP_ORIGIN": "https://api.example.org:8443"},
        {"HTTP_ORIGIN": "https://api.example.org.evil.org"},
        {"HTTP_ORIGIN": "https://api.example.org:x"},
        {"HTTP_ORIGIN": "https://evil.org", "HTTP_SEC_FETCH_SITE": "same-origin"},
    ],
)
@pytest.mark.parametrize("public_url", [None, "https://front.example.org"])
def test_other_pages_are_foreign(headers, public_url):
    assert is_foreign_page(OWN | headers, public_url)
