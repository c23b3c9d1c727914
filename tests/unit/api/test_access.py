"""Who may: the service in process, behind its layers, with real passwords and policy rules."""

import base64
import logging
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import falcon.testing
import pytest
from oslo_config import cfg

from nodetracker.accounting.schemas import record
from nodetracker.api.application import build_application
from nodetracker.api.auth.addresses import add_client_address
from nodetracker.api.auth.login_queue import FREE_FAILURES, LoginQueue
from nodetracker.api.auth.users import hash_password
from nodetracker.api.call import Answer
from nodetracker.api.fields import parameters
from nodetracker.api.layers import request_id_layer
from nodetracker.api.policies import list_rules
from nodetracker.api.route import Operation, list_open_paths, route
from nodetracker.api.routes import ROUTES, list_policies
from nodetracker.bootstrap.api import accepts_insecure_power_actions, build_access
from nodetracker.bootstrap.options.api import API
from nodetracker.model.errors import ConfigError, RefusedError
from nodetracker.model.health import ApiStatus
from nodetracker.views.health import evaluate_api_health

SECRET = "s3cret-of-a-user"
HASH = hash_password(SECRET, rounds=4)
TOKEN = "t0ken-of-a-user"


def change(call) -> Answer:
    """Answer a change, or fail as its body says."""
    if call.body is not None and call.body["name"] == "refuse":
        raise RefusedError("not now")
    if call.body is not None and call.body["name"] == "fail":
        raise ZeroDivisionError(SECRET)
    return Answer({}, status=202)


NAMED = record({"name": {"type": "string"}}, ["name"])
CHANGES = (
    route(
        "/v1/echo/{id}",
        POST=Operation(
            change,
            "nodetracker:services:update",
            query=parameters(secret=str),
            body=NAMED,
            answers={202: True},
        ),
    ),
    route(
        "/v2.1/os-echo/{id}/reboot",
        GET=Operation(change, "os_compute_api:os-hosts:reboot", is_change=True),
    ),
)

HEALTH = ApiStatus(heartbeat_age_seconds=1.0, has_broker=True, broker_error="mq-7: refused")

KEYSTONE = {
    "www_authenticate_uri": "http://keystone.example.org",
    "auth_type": "password",
    "auth_url": "http://127.0.0.1:1",  # nobody answers
    "username": "nodetracker",
    "password": SECRET,
    "http_request_max_retries": 0,
}


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    conf.register_opts(API.options, group=API.name)
    lines = [f"{name} = {value}\n" for name, value in KEYSTONE.items()]
    (tmp_path / "keystone.conf").write_text("".join(["[keystone_authtoken]\n", *lines]))
    conf([f"--config-dir={tmp_path}"], default_config_files=[])
    path = tmp_path / "htpasswd"
    path.write_text(f"admin:{HASH}\neve:{HASH}\n")
    conf.set_override("http_basic_auth_user_file", str(path), group="api")
    return conf


@pytest.fixture
def build(conf, backend):
    """Return a function that builds a client of the service with options of [api]."""

    def build(**options: object) -> SimpleNamespace:
        for name, value in options.items():
            conf.set_override(name, value, group="api")
        access = build_access(conf, list_open_paths(ROUTES))
        settings = replace(
            backend.settings,
            public_url=conf.api.public_url,
            insecure_power_actions=accepts_insecure_power_actions(conf),
        )
        application = build_application(
            replace(
                backend,
                authorizer=access.authorizer,
                settings=settings,
                read_health=lambda: evaluate_api_health(HEALTH),
            ),
            (*ROUTES, *CHANGES),
            [request_id_layer, partial(add_client_address, has_proxy=False), access.layer],
        )
        client = falcon.testing.TestClient(lambda environ, start: application(environ, start))

        def request(method: str, path: str, **options: object) -> falcon.testing.Result:
            options = {"host": "localhost", "remote_addr": "127.0.0.1"} | options
            return client.simulate_request(method, path, **options)

        return SimpleNamespace(request=request, access=access)

    return build


def basic(name: str, password: str = SECRET) -> dict[str, str]:
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def test_the_page_links_to_no_script(conf):
    with pytest.raises(ValueError, match="javascript"):
        conf.set_override("grafana_url", "javascript:alert(1)", group="api")


class TestHttpBasic:
    @pytest.mark.parametrize(
        "headers",
        [
            {},
            basic("admin", "wrong"),
            basic("nobody"),
            basic("admin", "x" * 100),
            {"Authorization": "Basic !"},
            {"X-Auth-Token": TOKEN},
        ],
        ids=["missing", "wrong", "unknown user", "too long", "malformed", "token"],
    )
    @pytest.mark.parametrize("path", ["/v1/about", "/v2.1/os-services"])
    def test_wrong_credentials_are_401_with_a_challenge(self, build, headers, path):
        found = build().request("GET", path, headers=headers)
        assert found.status_code == 401
        assert found.headers["www-authenticate"].startswith('Basic realm="nodetracker"')
        assert SECRET not in found.text
        assert HASH not in found.text

    def test_wrong_passwords_are_counted(self, build):
        client = build()
        client.request("GET", "/v1/about")
        client.request("GET", "/v1/about", headers=basic("admin"))
        client.request("GET", "/v1/about", headers=basic("admin", "wrong"))
        assert client.access.failures.count == 1

    def test_guesses_are_429_for_a_while(self, build):
        client = build()
        for _ in range(FREE_FAILURES):
            client.request("GET", "/v1/about", headers=basic("eve", "guess"))
        found = client.request("GET", "/v1/about", headers=basic("eve"))
        assert (found.status_code, found.headers["retry-after"]) == (429, "1")
        found = client.request("GET", "/v2.1/os-services", headers=basic("eve"))
        assert list(found.json) == ["overLimit"]

    def test_an_admin_may_do_all(self, build):
        about = build().request("GET", "/v1/about", headers=basic("admin")).json
        assert (about["user"], about["roles"]) == ("admin", ["admin", "reader"])
        assert about["rules"] == sorted(rule.name for rule in list_rules() if ":" in rule.name)

    def test_others_read_and_change_nothing(self, build):
        client = build()
        for path in ("/v1/services", "/v2.1/os-services"):
            assert client.request("GET", path, headers=basic("eve")).status_code == 200
        found = client.request("POST", "/v1/echo/1", headers=basic("eve"), json={"name": "a"})
        assert (found.status_code, found.json["errors"][0]["code"]) == (
            403,
            "nodetracker.forbidden",
        )

    @pytest.mark.parametrize("headers", [{}, basic("admin", "wrong")])
    @pytest.mark.parametrize("path", ["/", "/v2.1", "/container", "//v1/openapi.json/"])
    def test_documents_are_open_and_no_credentials_are_checked(self, build, path, headers):
        client = build()
        assert client.request("GET", path, headers=headers).status_code == 200
        assert client.access.failures.count == 0

    def test_health_checks_no_password_and_has_details_for_who_is_known(self, build, monkeypatch):
        client = build()
        assert client.request("GET", "/v1/about", headers=basic("admin")).status_code == 200
        monkeypatch.setattr(LoginQueue, "check_in_thread", lambda *_: pytest.fail("is checked"))
        for headers, has_details in (
            (basic("admin"), True), (basic("admin", "wrong"), False), (basic("eve", "wrong"), False),
            ({"Authorization": "Bearer x", "X-Auth-Token": "x"}, False), ({}, False),
        ):  # fmt: skip
            found = client.request("GET", "/health", headers=headers)
            assert found.status_code == 200
            assert (HEALTH.broker_error in found.text) == has_details
        assert client.access.failures.count == 0

    @pytest.mark.parametrize("host", ["localhost", "evil.example.org"])
    def test_health_has_details_without_authentication(self, build, host):
        found = build(auth_strategy="noauth").request("GET", "/health", host=host)
        assert (HEALTH.broker_error in found.text) == (host == "localhost")

    def test_identity_headers_of_clients_mean_nothing(self, build):
        spoofed = {
            "X-Roles": "admin", "X-User-Id": "admin", "X-Project-Id": "p9",
            "X-Identity-Status": "Confirmed", "OpenStack-System-Scope": "all",
        }  # fmt: skip
        client = build()
        assert client.request("GET", "/v1/about", headers=spoofed).status_code == 401
        about = client.request("GET", "/v1/about", headers=spoofed | basic("eve")).json
        assert (about["user"], about["project_id"], about["roles"]) == ("eve", None, ["reader"])

    def test_listening_elsewhere_without_tls_is_a_warning(self, build, caplog):
        build(listen="0.0.0.0", cert_file="/x")
        assert caplog.text == ""
        build(listen="0.0.0.0", cert_file=None)
        assert "passwords are sent unencrypted" in caplog.text


class TestNoauth:
    def test_over_loopback_everybody_administers(self, build):
        client = build(auth_strategy="noauth")
        headers = {"X-Auth-Token": "notused"}
        about = client.request("GET", "/v1/about", headers=headers).json
        assert (about["user"], about["roles"]) == ("noauth", ["admin", "reader"])

    @pytest.mark.parametrize("listen", ["0.0.0.0", "::", "10.0.0.7", "node-1.example.org"])
    def test_any_other_address_is_a_configuration_error(self, build, listen):
        with pytest.raises(ConfigError, match=r"^\[api\] auth_strategy: noauth"):
            build(auth_strategy="noauth", listen=listen)

    @pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
    def test_loopback_s_addresses_are_accepted(self, build, listen):
        assert build(auth_strategy="noauth", listen=listen)

    def test_a_foreign_host_name_is_403(self, build):
        client = build(auth_strategy="noauth", public_url="https://api.example.org")
        for host, status in (("evil.example.org", 403), ("api.example.org", 200)):
            found = client.request("GET", "/v1/about", host=host)
            assert found.status_code == status


class TestKeystone:
    def test_without_a_token_clients_are_sent_to_keystone(self, build):
        pytest.importorskip("keystonemiddleware")
        client = build(auth_strategy="keystone")
        for headers in ({}, {"X-Identity-Status": "Confirmed", "X-Roles": "admin"}):
            found = client.request("GET", "/v1/about", headers=headers)
            assert found.status_code == 401
            assert found.headers["www-authenticate"].startswith("Keystone uri=")
        assert client.request("GET", "/v2.1").status_code == 200

    def test_a_token_that_cannot_be_validated_is_401(self, build, monkeypatch, caplog):
        auth_token = pytest.importorskip("keystonemiddleware.auth_token")
        exceptions = pytest.importorskip("keystoneauth1.exceptions")

        def fetch(*arguments: object, **options: object) -> None:
            raise exceptions.EndpointNotFound("internal endpoint for identity not found")

        monkeypatch.setattr(auth_token.AuthProtocol, "fetch_token", fetch)
        client = build(auth_strategy="keystone")
        found = client.request("GET", "/v1/about", headers={"X-Auth-Token": "t"})
        assert found.status_code == 401
        assert "internal endpoint for identity not found" in caplog.text
        assert client.request("GET", "/v2.1", headers={"X-Auth-Token": "t"}).status_code == 200

    @pytest.mark.parametrize("name", ["auth_type", "www_authenticate_uri"])
    def test_options_without_which_requests_fail_are_required(self, build, tmp_path, conf, name):
        pytest.importorskip("keystonemiddleware")
        lines = [f"{key} = {value}\n" for key, value in KEYSTONE.items() if key != name]
        (tmp_path / "keystone.conf").write_text("".join(["[keystone_authtoken]\n", *lines]))
        conf.reload_config_files()
        with pytest.raises(ConfigError, match=rf"^\[keystone_authtoken\] {name}: is not set"):
            build(auth_strategy="keystone")


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example.org"},
    {"Origin": "null"},
]


class TestPagesOfOtherSites:
    @pytest.mark.parametrize("headers", FOREIGN)
    @pytest.mark.parametrize(
        ("method", "path"), [("POST", "/v1/echo/1"), ("GET", "/v2.1/os-echo/1/reboot")]
    )
    def test_they_change_nothing(self, build, method, path, headers):
        client = build()
        body = {"json": {"name": "a"}} if method == "POST" else {}
        for strategy in (client, build(auth_strategy="noauth")):
            found = strategy.request(method, path, headers=basic("admin") | headers, **body)
            assert found.status_code == 403

    @pytest.mark.parametrize(
        "headers", [{}, {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}]
    )
    def test_own_pages_and_clients_change(self, build, headers):
        client = build(allow_insecure_power_actions=True)
        for method, path, body in (
            ("POST", "/v1/echo/1", {"json": {"name": "a"}}),
            ("GET", "/v2.1/os-echo/1/reboot", {}),
        ):
            found = client.request(method, path, headers=basic("admin") | headers, **body)
            assert found.status_code == 202

    @pytest.mark.parametrize(
        ("options", "protocol", "status"),
        [
            ({}, "http", 403),
            ({}, "https", 202),
            ({"public_url": "https://api.example.org"}, "http", 202),
            ({"public_url": "http://api.example.org"}, "http", 403),
            ({"allow_insecure_power_actions": True}, "http", 202),
            ({"auth_strategy": "noauth"}, "http", 202),
        ],
    )
    def test_without_tls_browsers_do_not_say_whose_link_a_power_action_is(
        self, build, options, protocol, status
    ):
        client = build(**options)
        for method in ("GET", "POST"):
            path = "/v2.1/os-echo/1/reboot" if method == "GET" else "/v1/echo/1"
            body = {"json": {"name": "a"}} if method == "POST" else {}
            found = client.request(method, path, headers=basic("admin"), protocol=protocol, **body)
            assert found.status_code == (status if method == "GET" else 202)
            if found.status_code == 403:
                assert "allow_insecure_power_actions" in found.text

    def test_no_page_may_read_answers(self, build):
        headers = basic("eve") | {"Origin": "http://evil.example.org"}
        found = build().request("GET", "/v1/services", headers=headers)
        assert [name for name in found.headers if name.startswith("access-control")] == []


class TestLogOfChanges:
    @pytest.fixture(autouse=True)
    def _level(self, caplog):
        caplog.set_level(logging.DEBUG)

    def lines(self, caplog):
        return [
            record.message.split(": ", 1)[1]
            for record in caplog.records
            if record.message.startswith("Change req-") and record.levelno == logging.INFO
        ]

    @pytest.mark.parametrize(
        ("name", "body", "user", "outcome"),
        [
            ("admin", "a", "admin", 202),
            ("admin", "refuse", "admin", 409),
            ("admin", "fail", "admin", 500),
            ("eve", "a", "eve", 403),
            ("nobody", "a", "-", 401),
        ],
    )
    def test_each_is_one_line_without_secrets(self, build, caplog, name, body, user, outcome):
        headers = basic(name) | {"X-Auth-Token": TOKEN}
        build().request(
            "POST", "/v1/echo/a%0ab", headers=headers, json={"name": body}, query_string="secret=x"
        )
        rule = "nodetracker:services:update"
        assert self.lines(caplog) == [
            f"user {user}, project -, rule {rule}, "
            f"target POST /v1/echo/a%0Ab from 127.0.0.1: {outcome}"
        ]
        logged = "\n".join(record.message for record in caplog.records)
        for secret in (SECRET, TOKEN, headers["Authorization"].split()[1], '"name"', "secret=x"):
            assert secret not in logged

    def test_get_that_changes_is_one_too(self, build, caplog):
        client = build(allow_insecure_power_actions=True)
        client.request("GET", "/v2.1/os-echo/h/reboot", headers=basic("admin"))
        rule = "os_compute_api:os-hosts:reboot"
        target = "GET /v2.1/os-echo/h/reboot"
        assert self.lines(caplog) == [
            f"user admin, project -, rule {rule}, target {target} from 127.0.0.1: 202"
        ]

    def test_reading_is_not(self, build, caplog):
        build().request("GET", "/v1/services", headers=basic("admin"))
        assert self.lines(caplog) == []


def test_every_rule_decides_an_operation():
    """So the sample policy has no rule without a use, and the route table none without a default."""
    rules = [rule for rule in list_policies() if ":" in rule.name]
    assert [rule.name for rule in rules if not rule.operations] == []
