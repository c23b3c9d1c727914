"""The quick answer to whether a document is valid, compared with that of jsonschema."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetracker.accounting.acceptance import compile_schema
from nodetracker.accounting.schemas import CLAIM_REQUEST, CLAIM_REQUEST_OR_REQUESTS
from nodetracker.accounting.validator import _validator_class
from nodetracker.api.routes import ROUTES

OPERATIONS = [
    operation for route in ROUTES for listed in route.methods.values() for operation in listed
]
BODIES = {
    id(operation.body): operation.body for operation in OPERATIONS if operation.body is not None
}
QUERIES = {id(operation.query): operation.query for operation in OPERATIONS}

ODD = st.sampled_from(
    [None, True, 0, 1, -1, 1.0, 0.5, 2**31, 2**53 + 1, float("nan"), "", "a", "a\n", "\x00", "\ud800",
     "x" * 300, [], [1], {}, {"a": 1}, {"uuid": 1}]
)  # fmt: skip


def documents(schema: Any) -> st.SearchStrategy[Any]:
    """Return documents most of whose parts are valid, or nearly."""
    if not isinstance(schema, dict):
        return ODD
    if "then" in schema and "type" not in schema:
        return documents(schema["then"]) | documents(schema["else"])
    parts: list[st.SearchStrategy[Any]] = []
    names = schema.get("type", "object")
    for name in [names] if isinstance(names, str) else names:
        if name == "object":
            known = {key: documents(item) for key, item in schema.get("properties", {}).items()}
            needed = {key: known.pop(key) for key in schema.get("required", ()) if key in known}
            whole = st.fixed_dictionaries(needed, optional=known)
            parts += [
                whole,
                whole,
                whole,
                st.builds(
                    lambda one, two: one | two, whole, ODD.filter(lambda v: isinstance(v, dict))
                ),
            ]
        elif name == "array":
            parts.append(st.lists(documents(schema.get("items", {})), max_size=3))
        elif name in ("integer", "number"):
            ends = (schema.get("minimum", 0), schema.get("maximum", 9))
            parts.append(st.sampled_from([ends[0] - 1, ends[0], 1, ends[1], ends[1] + 1, 1.5]))
        elif name == "boolean":
            parts.append(st.booleans())
        elif name == "string":
            parts.append(st.sampled_from(schema.get("enum") or ["a", "container", "instance"]))
    return st.one_of(*parts, *parts, *parts, ODD)


@pytest.mark.parametrize("schema", [CLAIM_REQUEST, CLAIM_REQUEST_OR_REQUESTS], ids=["one", "many"])
def test_claim_requests_are_accepted_as_jsonschema_accepts_them(schema: Any) -> None:
    assert compare(schema, 200) == {True, False}


def test_bodies_are_accepted_as_jsonschema_accepts_them() -> None:
    answers = [compare(schema, 20) for schema in (*BODIES.values(), *QUERIES.values())]
    assert sum(True in found for found in answers) > len(answers) / 2


def compare(schema: Any, examples: int) -> set[bool]:
    """Compare the two for some documents; return their answers."""
    accept, validator = compile_schema(schema), _validator_class()(schema)
    answers: set[bool] = set()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(documents(schema))
    def check(document: Any) -> None:
        answers.add(accept(document))
        assert accept(document) == validator.is_valid(document)

    check()
    return answers


def test_no_document_is_accepted_by_a_keyword_that_is_not_known() -> None:
    assert not compile_schema({"if": {"not": {}}, "then": False})({})
