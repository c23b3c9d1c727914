"""Bad input of every operation in the route table: the right answer, and never a failure."""

import json
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from nodetracker.api.route import Operation, Route
from nodetracker.api.routes import ROUTES
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from tests.builders import create, make_guest, register
from tests.hostile.values import BODIES, TEXTS, VALUES
from tests.unit.api.conftest import Api, make_backend, microversion

NOT_TEXT = ("a%00", "%ED%A0%80")
"""Percent-encoded bytes that are never text to a database."""

HEADERS = (
    "OpenStack-API-Version", "X-OpenStack-Nova-API-Version", "Accept", "Accept-Encoding",
    "If-None-Match", "Content-Type", "X-Openstack-Request-Id", "Origin", "Sec-Fetch-Site", "Range",
    "If-Modified-Since", "Cookie", "Authorization", "X-Auth-Token",
)  # fmt: skip
UNAVAILABLE = (501, 503, 504)
"""What handlers answer in these tests, in which no agent answers and no broker exists."""

SECRETS = ("Traceback", "sqlalchemy", "sqlite", "SELECT ", 'File "', ".py", "password=")
OPERATIONS = [(route, method) for route in ROUTES for method in route.methods]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    """A store with a service, a node and a guest, for the whole sweep."""
    place = tmp_path_factory.mktemp("sweep")
    made = open_store(DatabaseSettings(f"sqlite:///{place}/db.sqlite"))
    metadata.create_all(made.engine)
    agent = register(made)
    made.apply_changes(agent, [create(agent, "n1", guests=(make_guest(),))], 60)
    yield made
    made.close()


@pytest.fixture(scope="module")
def api(store: SqlStore) -> Api:
    """One service for the whole sweep: to build it takes as long as many requests."""
    return Api(make_backend(store))


def render(route: Route, **values: str) -> str:
    """Return a path whose parameters are encoded values; others name what exists nowhere."""
    path = route.path
    for name in _parameters(route):
        path = path.replace(f"{{{name}}}", values.get(name, "1"))
    return path


def _parameters(route: Route) -> list[str]:
    return [part[1:-1] for part in route.path.split("/") if part.startswith("{")]


def headers_of(path: str, operation: Operation) -> dict[str, str]:
    """Return headers with the last microversion of an operation."""
    is_last = operation.until == Operation.__dataclass_fields__["until"].default
    return microversion(path, "latest" if is_last else operation.until)


def build_document(schema: Any) -> Any:
    """Return a small document that a schema accepts, as far as that can be seen."""
    if isinstance(schema, bool):
        return 1
    if "enum" in schema:
        return schema["enum"][0]
    kinds = schema.get("type", "object")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: build_document(properties[name]) for name in schema.get("required", ())}
    if schema.get("format") == "uuid":
        return "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    return {"string": "a", "integer": schema.get("minimum", 1), "boolean": True, "array": []}.get(
        kind, 1
    )


def spoil(document: Any, schema: Any) -> Iterator[Any]:
    """Return copies of a document with one bad value, in each key that the schema has."""
    if not isinstance(document, dict):
        return
    for name, inner in schema.get("properties", {}).items():
        for value in VALUES:
            yield document | {name: value}
        for value in spoil(document.get(name) or build_document(inner), inner):
            yield document | {name: value}
    yield document | {"nothing-of-ours": 1}
    yield {}


def assert_answered(found, *allowed: int) -> None:
    """Make sure that a request failed, if it did, by what the client sent."""
    status = found.status_code
    assert status < 500 or status in UNAVAILABLE, (status, found.text)
    if allowed:
        assert status in allowed, (status, found.text)
    if found.content:
        media_type = found.headers["content-type"].partition(";")[0]
        assert media_type == "application/json" or (status, media_type) == (200, "text/plain")
        assert found.headers["x-content-type-options"] == "nosniff"
    if status >= 400:
        assert not [word for word in SECRETS if word in found.text], found.text


def list_senders(api: Api, route: Route, method: str) -> list[partial[None]]:
    """Return functions that send and check a request, for each operation of a method."""
    return [
        partial(send, api, route, method, operation=operation)
        for operation in route.methods[method]
    ]


def send(
    api: Api,
    route: Route,
    method: str,
    *allowed: int,
    operation: Operation,
    path: str | None = None,
    body: bytes | None = None,
) -> None:
    if body is None and operation.body is not None:
        body = json.dumps(build_document(operation.body)).encode()
    headers = headers_of(route.path, operation)
    found = api.request(method, path or render(route), headers=headers, body=body or b"")
    assert_answered(found, *allowed)


each_operation = pytest.mark.parametrize(
    ("route", "method"), OPERATIONS, ids=lambda value: getattr(value, "path", value)
)


@pytest.mark.parametrize(
    ("route", "method"),
    [(route, method) for route, method in OPERATIONS if "{" in route.path],
    ids=lambda value: getattr(value, "path", value),
)
def test_parameters_of_the_path(api: Api, route: Route, method: str):
    for send in list_senders(api, route, method):
        for name in _parameters(route):
            for text in TEXTS:
                send(path=render(route, **{name: quote(text, safe="")}))
            for raw in NOT_TEXT:
                send(400, path=render(route, **{name: raw}))
    assert_goes_on(api)


@each_operation
def test_parameters_of_the_query(api: Api, route: Route, method: str):
    known = {name for found in route.methods[method] for name in found.query["properties"]}
    for send in list_senders(api, route, method):
        for name in [*known, "nothing"]:
            for text in TEXTS if name in known else TEXTS[:2]:
                send(path=f"{render(route)}?{name}={quote(text, safe='')}")
            for raw in NOT_TEXT:
                send(400, path=f"{render(route)}?{name}={raw}")
            send(path=f"{render(route)}?{name}")
            send(path=f"{render(route)}?{name}=1&{name}=2&{name}=%25")
        for raw in NOT_TEXT:
            send(400, path=f"{render(route)}?{raw}=1")
        send(path=f"{render(route)}?&&=&=1&;")
    assert_goes_on(api)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nodes?name_part={}",
        "/v1/workloads?name_part={}",
        "/v2.1/os-hypervisors/{}/search",
        "/v2.1/os-hypervisors?hypervisor_hostname_pattern={}",
    ],
)
def test_a_part_of_a_name_that_is_longer_than_names_is_refused(api: Api, path: str):
    """SQLite refuses patterns of more than 50,000 bytes."""
    headers = microversion(path, "2.53" if "?" in path else "2.1")
    assert api.request("GET", path.format("a" * 256), headers=headers).status_code == 400
    assert api.request("GET", path.format("a" * 255), headers=headers).status_code in (200, 404)


@each_operation
def test_bodies(api: Api, route: Route, method: str):
    for send in list_senders(api, route, method):
        schema = send.keywords["operation"].body
        for body in BODIES if schema is not None else BODIES[:2]:
            send(*([] if schema is None else [400]), body=body)
        if schema is not None:
            for document in spoil(build_document(schema), schema):
                send(body=json.dumps(document).encode())
    assert_goes_on(api)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_methods_and_headers(api: Api, route: Route):
    path = render(route)
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}:
        if method not in route.allowed:
            with warnings.catch_warnings(action="ignore"):  # of falcon's client
                found = api.request(method, path)
            assert_answered(found, 405)
            assert found.headers["allow"] == ", ".join(route.allowed)
    method = next(iter(route.methods))
    for value in ("", ",", ";q=", "\xff", "compute latest,", "%00", "9" * 500):
        assert_answered(api.request(method, path, headers=dict.fromkeys(HEADERS, value)))
    if "HEAD" in route.allowed:
        got, head = api.request("GET", path), api.request("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b"")


def assert_goes_on(api: Api) -> None:
    """Make sure that the service and its rows are as before."""
    [service] = api.get("/v1/services")["services"]
    assert (service["host"], service["disabled_reason"]) == ("alpha", None)
