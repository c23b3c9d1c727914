"""``/v1/session``: the cookie, in process."""

import logging
from dataclasses import replace

import pytest

from nodetracker.api.context import IDENTITY, SESSION_TOKEN, Login
from nodetracker.model.errors import AuthenticationError, ThrottledError
from tests.unit.api.conftest import ADMIN, Api

SECRET = "s3cret-of-a-user"
TOKEN = "gAAAAtoken-of-a-user="
BODY = {"user": "alice", "domain": "d1", "project": "p1", "password": SECRET}


class Sessions:
    """Opens one session; remembers logins and closed tokens."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.logins: list[Login] = []
        self.closed: list[str] = []

    def open(self, login: Login, address: str) -> str:
        if self.error is not None:
            raise self.error
        self.logins.append(login)
        return TOKEN

    def close(self, token: str) -> None:
        self.closed.append(token)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def logged_out(backend, sessions) -> Api:
    return Api(replace(backend, sessions=sessions), identity=AuthenticationError("none"))


def attributes(found) -> tuple[str, set[str]]:
    value, *others = found.headers["set-cookie"].split("; ")
    return value, set(others)


def test_login_sets_a_cookie_that_no_script_and_no_other_site_gets(logged_out, sessions):
    found = logged_out.request("POST", "/v1/session", json=BODY)
    assert (found.status_code, found.text) == (204, "")
    value, others = attributes(found)
    assert value.replace('"', "") == f"nodetracker_session={TOKEN}"
    assert others == {"HttpOnly", "Path=/", "SameSite=Strict"}
    assert found.headers["cache-control"] == "no-store"
    assert sessions.logins == [Login("alice", "d1", "p1", SECRET)]


def test_under_tls_the_cookie_is_secure_and_no_other_host_can_set_it(logged_out, backend, sessions):
    found = logged_out.request("POST", "/v1/session", json=BODY, protocol="https")
    assert attributes(found)[0].replace('"', "") == f"__Host-nodetracker_session={TOKEN}"
    assert attributes(found)[1] == {"HttpOnly", "Path=/", "SameSite=Strict", "Secure"}
    settings = replace(backend.settings, public_url="https://front.example.org")
    behind = Api(replace(backend, sessions=sessions, settings=settings), identity=None)
    value, others = attributes(behind.request("POST", "/v1/session", json=BODY))
    assert value.startswith("__Host-")
    assert "Secure" in others


def test_without_project_the_scope_is_the_system(logged_out, sessions):
    logged_out.request("POST", "/v1/session", json={"user": "a", "password": "b"})
    assert sessions.logins == [Login("a", "Default", None, "b")]


@pytest.mark.parametrize(
    ("error", "status"),
    [(AuthenticationError("wrong password"), 401), (ThrottledError("busy", 1), 429)],
)
def test_failures_set_no_cookie(logged_out, sessions, error, status):
    sessions.error = error
    found = logged_out.request("POST", "/v1/session", json=BODY)
    assert (found.status_code, found.json["errors"][0]["detail"]) == (status, str(error))
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize(
    "body", [{}, {"user": "a"}, {"user": "a", "password": ""}, BODY | {"more": 1}]
)
def test_malformed_logins_are_400(logged_out, body):
    found = logged_out.request("POST", "/v1/session", json=body)
    assert found.status_code == 400
    assert SECRET not in found.text


def test_a_page_of_another_site_logs_nobody_in(logged_out):
    headers = {"Origin": "http://evil.example.org"}
    found = logged_out.request("POST", "/v1/session", json=BODY, headers=headers)
    assert found.status_code == 403


def test_logout_deletes_the_cookie_and_closes_the_session(backend, sessions):
    extras = {IDENTITY: ADMIN, SESSION_TOKEN: TOKEN}
    found = make_cookie_client(backend, sessions, extras)("DELETE", "/v1/session")
    assert found.status_code == 204
    value, others = attributes(found)
    assert value.replace('"', "") == "nodetracker_session="
    assert "expires=Thu, 01 Jan 1970 00:00:00 GMT" in others
    assert sessions.closed == [TOKEN]


def test_logout_does_not_close_the_token_of_a_header(logged_out, sessions):
    assert logged_out.request("DELETE", "/v1/session").status_code == 204
    assert sessions.closed == []


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_other_strategies_have_no_sessions(api, method):
    found = api.request(method, "/v1/session", json=BODY)
    assert found.status_code == 404


def test_a_login_does_not_empty_the_overview(logged_out, backend):
    first = backend.fleet.get()
    logged_out.request("POST", "/v1/session", json=BODY)
    assert backend.fleet.get() is first


def test_neither_password_nor_token_is_logged(logged_out, sessions, caplog):
    caplog.set_level(logging.DEBUG)
    logged_out.request("POST", "/v1/session", json=BODY)
    sessions.error = ZeroDivisionError()
    logged_out.request("POST", "/v1/session", json=BODY)
    assert "target POST /v1/session from -: 204" in caplog.text
    assert "target POST /v1/session from -: 500" in caplog.text
    assert SECRET not in caplog.text
    assert TOKEN not in caplog.text
    assert SECRET not in repr(sessions.logins)


OWN = {"Origin": "http://falconframework.org"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OWN, 404),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
        (OWN | {"Content-Type": "application/json"}, 404),
        ({}, 403),
        (OWN | {"Content-Type": "text/plain"}, 403),
        (OWN | {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, 403),
        ({"Origin": "http://evil.example.org"}, 403),
    ],
)
def test_changes_by_cookie_come_from_the_own_page_and_no_form(backend, sessions, headers, status):
    request = make_cookie_client(backend, sessions, {IDENTITY: ADMIN, SESSION_TOKEN: TOKEN})
    path = "/v1/nodes/6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11/audit"
    assert request("POST", path, headers=headers).status_code == status


def make_cookie_client(backend, sessions, extras):
    """Return a function that sends a request as behind the layer of the cookie."""
    import falcon.testing

    from nodetracker.api.application import build_application

    application = build_application(replace(backend, sessions=sessions))
    client = falcon.testing.TestClient(lambda environ, start: application(environ, start))

    def request(method: str, path: str, headers=None):
        headers = OWN if headers is None else headers
        return client.simulate_request(method, path, headers=headers, extras=extras)

    return request
