"""The layers around the application, and the strategies without credentials."""

import asyncio
from typing import Any

import pytest
from keystonemiddleware.auth_token._request import _AuthTokenRequest
from oslo_config import cfg

from nodetracker.api.auth.addresses import NoauthAuthenticator, find_client_address
from nodetracker.api.auth.browser import is_foreign_page
from nodetracker.api.auth.keystone import KeystoneAuthenticator, register_options
from nodetracker.api.auth.layer import LoginFailures, LoginGate, authenticate, drop_identity_headers
from nodetracker.api.context import CLIENT_ADDRESS, IDENTITY, Identity
from nodetracker.model.errors import AuthenticationError, ForbiddenError, ThrottledError
from nodetracker.process.change_log import MAX_REFUSALS
from tests.builders import Clock

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


ANYBODY = Identity("anybody")
OPEN = frozenset(("/v2.1",))


class Anybody:
    def identify(self, environ):
        return ANYBODY


class Rejecting:
    def __init__(self, error=AuthenticationError("no")):  # noqa: B008
        self.error = error

    def identify(self, environ):
        raise self.error


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
    "refusal",
    [AuthenticationError("no"), ForbiddenError("no"), ThrottledError("no", 1)],
    ids=["wrong", "forbidden", "throttled"],
)
def test_whether_an_identity_is_needed_is_left_to_the_operation(refusal):
    application = Application()
    call(authenticate(application, Rejecting(refusal), LoginFailures()), {})
    assert application.environ[IDENTITY] is refusal


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("eve", "user 'eve'"),
        ("e\nWARNING \x1b[2Ja\u2028\u202e", r"user 'e\nWARNING \x1b[2Ja\u2028\u202e'"),
        ("x" * 1000, f"user '{'x' * 64}'"),
        (None, "invalid credentials"),
    ],
    ids=["name", "control characters", "long", "none"],
)
def test_a_failed_login_is_one_line_with_name_and_address(caplog, user, shown):
    LoginFailures().add(user, "192.0.2.66")
    assert caplog.messages == [f"Login failed: {shown} from 192.0.2.66"]


def test_failed_logins_of_a_storm_are_counted_and_twenty_a_minute_are_logged(caplog):
    clock = Clock(100.0)
    failures = LoginFailures(clock)
    for _ in range(155):
        failures.add("eve", "192.0.2.66")
    assert len(caplog.messages) == MAX_REFUSALS + 1
    assert caplog.messages[-1].startswith("Login failed: more than 20 times within 60 s")
    clock.seconds += 60.0
    failures.add("eve", "192.0.2.66")
    assert caplog.messages[-1] == "Login failed: user 'eve' from 192.0.2.66"
    assert failures.count == 156


class TestGate:
    def pass_through(self, path: str = "/v1/about", **headers: str) -> tuple[dict, list[dict]]:
        """Send a request through the gate and the layer behind it; return what both saw."""
        seen: list[dict] = []
        application = Application()

        async def identify(environ):
            seen.append(environ)
            raise AuthenticationError("no")

        async def serve(scope, receive, send):
            environ = {"PATH_INFO": scope["path"], "asgi.scope": scope}
            call(authenticate(application, Anybody(), LoginFailures()), environ)

        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        scope = {"type": "http", "path": path, "headers": raw, "client": ("127.0.0.1", 9)}
        asyncio.run(LoginGate(serve, identify, OPEN, has_proxy=True)(scope, None, None))
        return application.environ, seen

    def test_credentials_are_checked_before_a_thread_has_the_request(self):
        environ, [seen] = self.pass_through(
            authorization="Basic \xe9", **{"x-forwarded-for": "192.0.2.66"}
        )
        assert isinstance(environ[IDENTITY], AuthenticationError)
        assert seen["HTTP_AUTHORIZATION"] == "Basic \xe9"
        assert seen[CLIENT_ADDRESS] == "192.0.2.66"

    def test_requests_without_credentials_pass(self):
        environ, seen = self.pass_through()
        assert (environ[IDENTITY], seen) == (ANYBODY, [])

    @pytest.mark.parametrize("path", ["/v2.1", "//v2.1//"])
    def test_requests_of_open_paths_pass(self, path):
        assert self.pass_through(path, authorization="Basic x")[1] == []


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({}, "10.0.0.1"),
        ({"X_FORWARDED_FOR": "192.0.2.7"}, "192.0.2.7"),
        ({"X_FORWARDED_FOR": "203.0.113.1, 192.0.2.7"}, "192.0.2.7"),
        ({"X_FORWARDED_FOR": "[2001:DB8::1]:4711"}, "2001:db8::1"),
        ({"X_FORWARDED_FOR": "fe80::1%\nERROR"}, "fe80::1"),
        ({"X_FORWARDED_FOR": "unknown\nERROR"}, "10.0.0.1"),
        ({"FORWARDED": "for=203.0.113.1, proto=https;For=192.0.2.7"}, "192.0.2.7"),
        ({"FORWARDED": 'for="[2001:db8::1]:4711"'}, "2001:db8::1"),
        ({"FORWARDED": "for=_hidden", "X_FORWARDED_FOR": "192.0.2.7"}, "10.0.0.1"),
        ({"FORWARDED": ";=;for", "X_REAL_IP": "192.0.2.7"}, "10.0.0.1"),
    ],
)
def test_the_nearest_proxy_says_the_client_s_address_where_there_is_one(headers, address):
    environ = {f"HTTP_{name}": value for name, value in headers.items()}
    environ["REMOTE_ADDR"] = "10.0.0.1"
    assert find_client_address(environ, has_proxy=True) == address
    assert find_client_address(environ, has_proxy=False) == "10.0.0.1"


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
    [
        "",
        "evil.example.org",
        "localhost.evil.org:8774",
        "127.0.0.1.evil.org",
        "10.0.0.1",
        "[::2]",
        "[::1].evil.com",
        "[::1].evil.com:8774",
        "[::1]:8774.evil.com",
        "[[::1]]",
        "[::1]evil",
        "[::1",
        "[localhost].evil.com",
    ],
)
@pytest.mark.parametrize("public_url", [None, "https://api.example.org"])
def test_noauth_refuses_other_names_as_of_a_page_by_dns_rebinding(host, public_url):
    strategy = NoauthAuthenticator(public_url)
    with pytest.raises(ForbiddenError):
        strategy.identify({"HTTP_HOST": host, "REMOTE_ADDR": "127.0.0.1"})


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip"],
)
def test_noauth_refuses_what_a_proxy_forwards(header):
    environ = {"HTTP_HOST": "localhost", "REMOTE_ADDR": "127.0.0.1"}
    with pytest.raises(ForbiddenError, match=header):
        NoauthAuthenticator().identify(environ | {environ_key(header): "localhost"})


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
