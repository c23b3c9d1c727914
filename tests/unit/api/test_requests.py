"""What holds for all resources: methods, errors, credentials, texts, encoding, versions."""

import errno
import gzip
import json
import warnings
from dataclasses import replace

import falcon
import falcon.testing
import pytest
from oslo_config import cfg

from nodetracker.accounting.schemas import integer
from nodetracker.api.application import build_application
from nodetracker.api.call import Answer
from nodetracker.api.context import Identity
from nodetracker.api.fields import parameters
from nodetracker.api.layers import proxy_layer
from nodetracker.api.policies import list_rules
from nodetracker.api.route import Operation, route
from nodetracker.api.routes import ROUTES
from nodetracker.model.errors import (
    AuthenticationError,
    BusyError,
    ClaimConflictError,
    ClaimRefusedError,
    ConflictError,
    DriverFeatureError,
    ExhaustedError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    RequestError,
    RpcUnavailableError,
    SchemaError,
    StoreUnavailableError,
    ThrottledError,
)
from tests.unit.api.conftest import Api, microversion

BODY = parameters(name=str, sizes=[integer()])


def echo(call) -> Answer:
    """Return what was understood."""
    return Answer(
        {"query": dict(call.query), "params": dict(call.params), "body": call.body}, status=200
    )


def fail(call) -> Answer:
    """Raise the error of the test."""
    raise FAILURE[0]


def fail_in_the_middle(call) -> Answer:
    """Return an answer of which the second part raises the error of the test."""

    def read():
        yield b"["
        raise FAILURE[0]

    return Answer(stream=read())


FAILURE: list[Exception] = []
ANY = {200: True}
QUERY = parameters(limit=integer(1), deep=(bool, "a boolean"), trait=[str], name=str)  # fmt: skip


def echoing(rule: str = "r", **options) -> Operation:
    return Operation(echo, rule, answers=ANY, **options)


@pytest.fixture
def echo_api(backend) -> Api:
    """The service with routes that return what they are asked."""
    routes = (
        *ROUTES,
        route("/v1/echo", GET=echoing(query=QUERY), POST=echoing("w", body=BODY)),
        route("/v1/echo/{id}", GET=echoing()),
        route("/v1/fail", GET=Operation(fail, "r", answers=ANY)),
        route("/v2.1/fail", GET=Operation(fail, "r")),
        route("/v2.1/fail-later", GET=Operation(fail_in_the_middle, "r")),
        route(
            "/v2.1/os-echo",
            GET=(echoing(query=QUERY, until="2.10"), echoing(query=QUERY, since="2.50")),
        ),
    )
    return Api(backend, routes)


class TestMethods:
    def test_an_unknown_method_is_answered_with_the_known_ones(self, api):
        for method in ("DELETE", "PATCH", "OPTIONS", "TRACE", "NOTHING"):
            with warnings.catch_warnings(action="ignore"):  # of falcon's client
                found = api.request(method, "/v1/services")
            assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD")

    def test_head_answers_as_get_without_a_body(self, api):
        got, head = api.request("GET", "/v1/about"), api.request("HEAD", "/v1/about")
        assert head.status_code == 200
        assert head.content == b""
        for name in ("content-length", "etag", "content-type"):
            assert head.headers[name] == got.headers[name]

    @pytest.mark.parametrize("path", ["/v2.1", "/v2.1/os-services", "/v1/services", "/container"])
    def test_a_trailing_slash_does_not_matter(self, api, path):
        assert api.get(path) == api.get(f"{path}/")

    @pytest.mark.parametrize("path", ["//v2.1/os-services", "/v2.1//os-services//", "//v2.1"])
    def test_several_slashes_are_one(self, api, path):
        api.identity = Identity("root", "p1", frozenset({"admin"}))
        headers = {"OpenStack-API-Version": "compute 2.53"}
        single = f"/{path.strip('/')}".replace("//", "/")
        wanted, found = (api.request("GET", p, headers=headers) for p in (single, path))
        assert (found.status_code, found.json) == (200, wanted.json)
        version = "openstack-api-version"
        assert found.headers.get(version) == wanted.headers.get(version)


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "status", "code"),
        [
            (RequestError("a.b", "is bad"), 400, "nodetracker.request.invalid"),
            (NotFoundError("no such node: n"), 404, "nodetracker.not_found"),
            (RefusedError("not now"), 409, "nodetracker.refused"),
            (ClaimRefusedError(["no room"]), 409, "nodetracker.claim.refused"),
            (ClaimConflictError("other body"), 409, "nodetracker.claim.conflict"),
            (ConflictError("changed"), 409, "nodetracker.conflict"),
            (StoreUnavailableError("mysql://db-y: x"), 503, "nodetracker.database.unavailable"),
            (SchemaError("mysql://db-y: x"), 503, "nodetracker.database.schema"),
            (DriverFeatureError("fake has none"), 501, "nodetracker.not_supported"),
            (RpcUnavailableError("silent"), 504, "nodetracker.agent.silent"),
            (ZeroDivisionError("secret"), 500, "nodetracker.internal"),
            (AuthenticationError("who?"), 401, "nodetracker.unauthorized"),
            (ForbiddenError("no"), 403, "nodetracker.forbidden"),
            (BusyError("too many"), 503, "nodetracker.busy"),
            (ExhaustedError("secret"), 503, "nodetracker.exhausted"),
            (RuntimeError("can't start new thread"), 503, "nodetracker.exhausted"),
            (MemoryError(), 503, "nodetracker.exhausted"),
            (OSError(errno.EMFILE, "Too many open files"), 503, "nodetracker.exhausted"),
            (ThrottledError("too many", 7), 429, "nodetracker.too_many_logins"),
            (falcon.HTTPNotAcceptable(), 406, "nodetracker.http.not_acceptable"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
    )
    def test_each_error_has_its_status_and_code(self, echo_api, error, status, code):
        FAILURE[:] = [error]
        found = echo_api.request("GET", "/v1/fail")
        assert found.status_code == status
        [shown] = found.json["errors"]
        assert (shown["status"], shown["code"]) == (status, code)
        assert shown["request_id"] == found.headers["x-openstack-request-id"]
        assert ("retry-after" in found.headers) == (status in (429, 503))
        assert "secret" not in found.text
        assert "db-y" not in found.text

    @pytest.mark.parametrize(
        ("error", "level"),
        [
            (ConflictError("mysql at db-y: changed"), "WARNING"),
            # Each request fails in an outage, which has its own two lines.
            (StoreUnavailableError("mysql at db-y is read-only"), "DEBUG"),
            (SchemaError("mysql at db-y has no tables"), "DEBUG"),
        ],
    )
    def test_why_the_database_failed_is_in_the_log(self, echo_api, caplog, error, level):
        caplog.set_level("DEBUG", logger="nodetracker.api")
        FAILURE[:] = [error]
        found = echo_api.request("GET", "/v1/fail")
        [record] = caplog.records
        request_id = found.headers["x-openstack-request-id"]
        assert record.levelname == level
        assert record.message == f"{request_id} GET /v1/fail: {error}"

    def test_that_the_process_is_at_a_limit_is_logged_once_and_when_it_is_over(
        self, echo_api, caplog
    ):
        caplog.set_level("INFO", logger="nodetracker")
        for error in (MemoryError(), RuntimeError("can't start new thread"), MemoryError()):
            FAILURE[:] = [error]
            assert echo_api.request("GET", "/v1/fail").status_code == 503
            assert echo_api.request("GET", "/v2.1/fail").json["serviceUnavailable"]
        FAILURE[:] = [RefusedError("not now")]
        assert echo_api.request("GET", "/v1/fail").status_code == 409
        assert caplog.messages == [
            "The REST service: no memory is left: the limit of memory is reached",
            "The REST service is back after 0 s",
        ]

    def test_an_answer_of_which_a_part_is_sent_is_cut_off(self, echo_api, caplog):
        FAILURE[:] = [StoreUnavailableError("mysql at db-y is gone")]
        with pytest.raises(ConnectionAbortedError):
            echo_api.request("GET", "/v2.1/fail-later")
        (message,) = caplog.messages
        named = "GET /v2.1/fail-later: mysql at db-y is gone; cutting off the answer"
        assert message.partition(" ")[2] == named
        assert "db-y" in echo_api.backend.counters.store_errors.error

    def test_a_refused_claim_has_its_reasons(self, echo_api):
        FAILURE[:] = [ClaimRefusedError(["no room", "no devices"])]
        [shown] = echo_api.request("GET", "/v1/fail").json["errors"]
        assert shown["reasons"] == ["no room", "no devices"]

    @pytest.mark.parametrize(
        ("error", "name", "status"),
        [
            (NotFoundError("no such host: h"), "itemNotFound", 404),
            (RequestError("", "bad"), "badRequest", 400),
            (RefusedError("not now"), "conflictingRequest", 409),
            (ZeroDivisionError("secret"), "computeFault", 500),
        ],
    )
    def test_novas_errors_have_novas_form(self, echo_api, error, name, status):
        FAILURE[:] = [error]
        found = echo_api.request("GET", "/v2.1/fail")
        assert found.json[name]["code"] == found.status_code == status
        assert "secret" not in found.text

    def test_an_unknown_path_has_the_form_of_its_family(self, api):
        found = api.request("GET", "/v2.1/servers").json["itemNotFound"]
        assert found == {"code": 404, "message": "The resource could not be found."}
        assert set(api.request("GET", "/nothing").json) == {"errors"}


class TestCredentials:
    def test_only_open_operations_answer_without(self, api):
        api.identity = None
        for path in ("/", "/v2.1", "/container", "/container/v1", "/v1", "/v1/openapi.json"):
            assert api.request("GET", path).status_code == 200
        for path in ("/v2.1/os-services", "/v1/services", "/v1/about"):
            assert api.request("GET", path).status_code == 401

    def test_the_reason_of_a_rejection_is_the_answer(self, api):
        api.identity = AuthenticationError("wrong password", 'Basic realm="x"')
        found = api.request("GET", "/v1/services")
        assert (found.status_code, found.headers["www-authenticate"]) == (401, 'Basic realm="x"')
        assert api.request("GET", "/v2.1").status_code == 200

    def test_a_rule_that_does_not_allow_is_403(self, api):
        api.rules.denied = {"nodetracker:services:list"}
        assert api.request("GET", "/v1/services").status_code == 403
        assert api.request("GET", "/v2.1/os-services").status_code == 200

    def test_a_rule_is_checked_before_the_query(self, api):
        api.rules.denied = {"nodetracker:services:list"}
        assert api.request("GET", "/v1/services?nothing=1").status_code == 403

    def test_the_project_of_a_path_must_be_the_users(self, api):
        assert "services" in api.get("/v2.1/p1/os-services")
        assert api.request("GET", "/v2.1/p2/os-services").json["badRequest"]["code"] == 400
        api.identity = Identity("root", None, frozenset({"admin"}), is_system=True)
        assert "services" in api.get("/v2.1/p2/os-services")

    def test_a_change_is_one_line_without_its_body(self, echo_api, caplog):
        caplog.set_level("INFO", logger="nodetracker.changes")
        found = echo_api.request("POST", "/v1/echo", json={"name": "secret"})
        [line] = caplog.messages
        request_id = found.headers["x-openstack-request-id"]
        assert line == (
            f"Change {request_id}: user alice, project p1, rule w, target POST /v1/echo from -: 200"
        )
        echo_api.request("POST", "/v1/echo", json={"none": "secret"})
        assert caplog.messages[1].endswith("target POST /v1/echo from -: 400")


class TestQueries:
    def test_parameters_have_the_types_of_the_schema(self, echo_api):
        found = echo_api.get("/v1/echo?limit=7&deep=true&trait=A&trait=B&name=1+%C3%A4")
        assert found["query"] == {"limit": 7, "deep": True, "trait": ["A", "B"], "name": "1 ä"}

    @pytest.mark.parametrize(
        ("query", "detail"),
        [
            ("limit=0", "limit: expected an integer from 1 to 2147483647, got 0"),
            ("limit=x", "limit: expected an integer from 1 to 2147483647, got 'x'"),
            ("limit=1&limit=2", "limit: is given more than once"),
            ("colour=red", "unknown key 'colour': expected one of limit, deep, trait, name"),
            ("name=%FF", "name: not valid UTF-8"),
            ("name=%00", "name: contains a NUL character"),
        ],
    )
    def test_a_wrong_one_is_named(self, echo_api, query, detail):
        found = echo_api.request("GET", "/v1/echo", query_string=query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"] == detail

    def test_nova_ignores_unknown_ones_below_2_75(self, echo_api):
        path = "/v2.1/os-services?colour=red"
        header = "OpenStack-API-Version"
        assert echo_api.request("GET", path, headers={header: "compute 2.74"}).status_code == 200
        assert echo_api.request("GET", path, headers={header: "compute 2.75"}).status_code == 400

    def test_a_path_that_is_not_text_is_rejected(self, echo_api):
        assert echo_api.get("/v1/echo/a%20b")["params"] == {"id": "a b"}
        assert echo_api.request("GET", "/v1/echo/a%00b").status_code == 400


class TestBodies:
    def test_is_checked_by_the_schema(self, echo_api):
        body = {"name": "ä", "sizes": [1]}
        assert echo_api.request("POST", "/v1/echo", json=body).json["body"] == body

    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            (b"", "body: not valid JSON"),
            (b"{", "body: not valid JSON"),
            (b"\xff", "body: not valid UTF-8"),
            (b'{"name": "\\u0000"}', "name: contains a NUL character"),
            (b'{"name": "\\ud800"}', "name: not valid UTF-8"),
            (b'{"sizes": [1, "2"]}', "sizes[1]: expected an integer"),
            (b"[" * 100_000, "body: not valid JSON"),
            (b"[]", "expected an object, got []"),
        ],
    )
    def test_a_wrong_one_is_named(self, echo_api, body, detail):
        found = echo_api.request("POST", "/v1/echo", body=body)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    @pytest.mark.parametrize("path", ["/v1/echo", "/v1/claims", "/v2.1/os-services/1"])
    @pytest.mark.parametrize(
        ("media_type", "status"),
        [
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
            ("application/json-seq", 415),
            ("Application/JSON; charset=utf-8", None),
            ("application/merge-patch+json", None),
        ],
    )
    def test_of_another_type_than_json_is_415(self, echo_api, path, media_type, status):
        method = "PUT" if "os-services" in path else "POST"
        headers = {"Content-Type": media_type} | microversion(path, "2.53")
        found = echo_api.request(method, path, body=b"{}", headers=headers)
        assert (found.status_code == 415) is (status == 415)

    def test_a_long_one_is_413(self, backend):
        settings = replace(backend.settings, max_body_bytes=20)
        routes = (route("/v1/echo", POST=echoing(body=BODY)),)
        api = Api(replace(backend, settings=settings), routes)
        assert api.request("POST", "/v1/echo", body=b'{"name": "0123456"}').status_code == 200
        assert api.request("POST", "/v1/echo", body=b'{"name": "01234567890"}').status_code == 413


class TestPreconditions:
    """Of an API whose ETags are weak, which never match strongly."""

    @pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
    @pytest.mark.parametrize(
        ("wanted", "status"), [('"a"', 412), ('W/"a"', 412), ('"*"', 412), ("*", 200), (" * ", 200)]
    )
    def test_a_change_of_what_is_named_by_its_tag_is_refused(self, backend, method, wanted, status):
        api = Api(backend, (route("/v1/echo", **{method: echoing()}),))
        found = api.request(method, "/v1/echo", headers={"If-Match": wanted})
        assert found.status_code == status

    def test_reads_and_other_families_ignore_it(self, echo_api):
        headers = {"If-Match": '"a"'}
        assert echo_api.request("GET", "/v1/echo", headers=headers).status_code == 200
        found = echo_api.request("PUT", "/v2.1/os-services/disable", headers=headers, json={})
        assert found.status_code == 400


class TestMicroversions:
    @pytest.mark.parametrize(
        ("asked", "answered"),
        [
            ({}, "2.1"),
            ({"OpenStack-API-Version": "compute 2.53"}, "2.53"),
            ({"X-OpenStack-Nova-API-Version": "2.53"}, "2.53"),
            ({"OpenStack-API-Version": "volume 3.1, compute latest"}, "2.96"),
        ],
    )
    def test_either_header_selects_one(self, api, asked, answered):
        found = api.request("GET", "/v2.1/os-services", headers=asked)
        assert found.headers["openstack-api-version"] == f"compute {answered}"
        assert found.headers["x-openstack-nova-api-version"] == answered
        assert found.headers["vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version"

    @pytest.mark.parametrize(
        ("asked", "status"),
        [("2.0", 406), ("2.97", 406), ("3.1", 406), ("2", 400), ("2.x", 400), ("2.1.0", 400),
         ("-2.1", 400), ("", 400)],
    )  # fmt: skip
    def test_others_are_refused(self, api, asked, status):
        headers = {"X-OpenStack-Nova-API-Version": asked}
        assert api.request("GET", "/v2.1/os-services", headers=headers).status_code == status

    def test_version_documents_ignore_the_header(self, api):
        headers = {"OpenStack-API-Version": "compute 9.9"}
        assert api.request("GET", "/v2.1", headers=headers).status_code == 200

    def test_an_operation_outside_its_versions_is_404(self, echo_api):
        header = "OpenStack-API-Version"
        statuses = {
            version: echo_api.request(
                "GET", "/v2.1/os-echo", headers={header: f"compute {version}"}
            ).status_code
            for version in ("2.1", "2.10", "2.11", "2.49", "2.50", "2.96")
        }
        assert statuses == {
            "2.1": 200, "2.10": 200, "2.11": 404, "2.49": 404, "2.50": 200, "2.96": 200,
        }  # fmt: skip


class TestEncoding:
    def test_an_unchanged_body_is_not_sent_again(self, api):
        tag = api.request("GET", "/v1/about").headers["etag"]
        assert tag.startswith('W/"')
        for wanted in (tag, f'"other", {tag}', "*"):
            found = api.request("GET", "/v1/about", headers={"If-None-Match": wanted})
            assert (found.status_code, found.content, found.headers["etag"]) == (304, b"", tag)
        other = api.request("GET", "/v1/about", headers={"If-None-Match": 'W/"other"'})
        assert other.status_code == 200

    def test_only_own_resources_have_etags(self, api):
        assert "etag" not in api.request("GET", "/v2.1").headers
        assert "etag" not in api.request("GET", "/v1/nothing").headers

    def test_long_bodies_are_compressed_for_who_accepts_it(self, api):
        plain = api.request("GET", "/v1/openapi.json")
        packed = api.request("GET", "/v1/openapi.json", headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(packed.content)) == plain.json
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert packed.headers["etag"] == plain.headers["etag"]

    @pytest.mark.parametrize("accepted", ["gzip;q=0", "br", ""])
    def test_others_get_them_as_they_are(self, api, accepted):
        found = api.request("GET", "/v1/openapi.json", headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in found.headers


class TestLinks:
    def test_use_what_the_request_says(self, api):
        links = api.get("/v2.1", host="api.example.org", port=8774)["version"]["links"]
        assert links == [{"rel": "self", "href": "http://api.example.org:8774/v2.1/"}]

    def test_use_the_public_url_if_there_is_one(self, backend):
        settings = replace(backend.settings, public_url="https://cloud.example.org/compute/")
        links = Api(replace(backend, settings=settings)).get("/v2.1")["version"]["links"]
        assert links[0]["href"] == "https://cloud.example.org/compute/v2.1/"


def test_no_request_id_comes_from_outside(api):
    own = api.request("GET", "/v1/about", headers={"X-Openstack-Request-Id": "req-1"})
    assert own.headers["x-openstack-request-id"] not in ("", "req-1")


def test_every_rule_of_the_table_is_a_rule_of_the_policy():
    used = {o.rule for r in ROUTES for operations in r.methods.values() for o in operations}
    assert used - {None} <= {rule.name for rule in list_rules()}


class TestProxies:
    @pytest.mark.parametrize(("is_trusted", "prefix"), [(True, "https"), (False, "http")])
    def test_their_headers_count_only_if_the_operator_says_so(self, backend, is_trusted, prefix):
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        application = build_application(backend, layers=[proxy_layer(conf)])
        conf.set_override("enable_proxy_headers_parsing", is_trusted, group="oslo_middleware")
        client = falcon.testing.TestClient(lambda environ, start: application(environ, start))
        found = client.simulate_get(
            "/v2.1", headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "h"}
        )
        assert found.json["version"]["links"][0]["href"].startswith(f"{prefix}://")
