"""The description of nodetracker's own API, made from the route table."""

import pytest

from nodetracker.api.family import Family, family_of
from nodetracker.api.route import Route
from nodetracker.api.routes import ROUTES

OWN = [route for route in ROUTES if family_of(route.path) is Family.OWN]


def test_describes_every_route_of_the_own_api(api):
    document = api.get("/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {path: {*item} - {"parameters"} for path, item in document["paths"].items()} == {
        route.path: {method.lower() for method in route.methods} for route in OWN
    }


def test_is_valid(api):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(api.get("/v1/openapi.json"))


def test_patterns_are_those_of_every_language(api):
    text = api.request("GET", "/v1/openapi.json").text
    for part in (r"\\Z", "(?", r"\\u"):  # Python's end; lookahead and \\u are not Go's
        assert part not in text


def test_describes_parameters_and_answers(api):
    found = api.get("/v1/openapi.json")["paths"]["/v1/services"]["get"]
    assert found["operationId"] == "get_services"
    assert found["summary"] == "List services"
    assert [parameter["name"] for parameter in found["parameters"]] == [
        "host", "binary", "with_count", "limit", "marker",
    ]  # fmt: skip
    assert set(found["responses"]) == {"200", "default"}


def list_values(schema):
    for item in schema.get("properties", {}).values():
        if isinstance(item, dict):
            yield item
            yield from list_values(item)
            yield from list_values(item.get("items", {}))


BEGINNINGS = {"boolean": "true", "integer": "an integer", "array": "a list"}


@pytest.mark.parametrize("route", OWN, ids=lambda route: route.path)
def test_a_description_says_what_is_expected(route: Route):
    """Errors quote it after "expected"."""
    for operations in route.methods.values():
        [operation] = operations
        for value in (*list_values(operation.query), *list_values(operation.body or {})):
            kind = "enum" if "enum" in value else value["type"]
            if kind != "array" or value not in operation.query["properties"].values():
                begin = BEGINNINGS.get(str(kind), "one of" if kind == "enum" else "")
                assert value["description"].startswith(begin), value


@pytest.mark.parametrize("route", OWN, ids=lambda route: route.path)
def test_every_operation_declares_its_answers(route: Route):
    for operations in route.methods.values():
        [operation] = operations
        assert operation.answers
