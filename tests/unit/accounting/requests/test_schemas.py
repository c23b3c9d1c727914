import json
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from nodetracker.accounting.schemas import (
    CLAIM_REQUEST,
    CLAIM_REQUEST_OR_REQUESTS,
    MIGRATION,
    NUMA,
    NUMA_LIMITS,
    TEXT,
    integer,
    list_of,
    record,
)
from nodetracker.accounting.validator import check
from nodetracker.model.errors import RequestError

SCHEMAS = [CLAIM_REQUEST, CLAIM_REQUEST_OR_REQUESTS, MIGRATION, NUMA, NUMA_LIMITS]


def parts_of(schema):
    yield schema
    for item in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(item, dict | list):
            yield from parts_of(item)


@pytest.mark.parametrize(
    "schema", SCHEMAS, ids=["claim", "claims", "migration", "numa", "numa limits"]
)
def test_a_schema_is_valid_plain_json(schema):
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def test_each_type_has_a_description_that_errors_can_quote():
    missing = [
        part
        for part in parts_of(CLAIM_REQUEST)
        if isinstance(part, dict)
        and ("type" in part or "enum" in part)
        and "description" not in part
        and not isinstance(part["type"], dict)  # a property of this name
    ]
    assert missing == []


ITEM = record({"name": TEXT, "count": integer(1, 3)}, required=["name"])
SCHEMA = record({"items": list_of(ITEM, "a list of items", maxItems=2)})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (7, "expected an object, got 7"),
        ({"thing": 1}, "unknown key 'thing': expected one of items"),
        ({"items": {}}, "items: expected a list of items, got {}"),
        ({"items": [{}, {}, {}]}, "items: expected a list of items, got a list of 3"),
        ({"items": [{"count": 1}]}, "items[0].name: is missing"),
        ({"items": [{"name": "a"}, {"name": 1}]}, "items[1].name: expected a text of"),
        (
            {"items": [{"name": "a", "count": 4}]},
            "items[0].count: expected an integer from 1 to 3, got 4",
        ),
        (
            {"items": "x" * 200},
            f"items: expected a list of items, got '{'x' * 99}...",
        ),
    ],
    ids=str,
)
def test_an_error_names_the_path_and_what_was_expected(document, message):
    with pytest.raises(RequestError) as caught:
        check(document, SCHEMA)
    assert str(caught.value).startswith(message)


def test_the_library_is_imported_with_the_first_request_that_is_wrong():
    program = (
        "import sys, nodetracker.cmd.compute, nodetracker.cmd.manage;"
        "import nodetracker.cmd.commands.claim, nodetracker.compute.manager;"
        "assert 'jsonschema' not in sys.modules;"
        "from nodetracker.accounting.ledger.request import parse_claim_request;"
        "parse_claim_request({'workload': {'uuid': '6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11'}});"
        "assert 'jsonschema' not in sys.modules;"
        "from nodetracker.accounting.validator import check;"
        "from nodetracker.model.errors import RequestError\n"
        "try: check(1, {'description': 'a text', 'type': 'string'})\n"
        "except RequestError: assert 'jsonschema' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL)
