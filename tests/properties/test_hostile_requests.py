"""Any value in bodies, queries and headers of the REST service: ``tox -e properties``."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.api.routes import ROUTES
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.units import MILLI
from tests.builders import create, make_guest, register
from tests.hostile.limits import limited
from tests.hostile.values import ODD_TEXTS, TEXTS, json_values, list_places, spoil
from tests.unit.accounting.ledger.test_request_values import WHOLE
from tests.unit.api.conftest import Api, make_backend
from tests.unit.api.test_bad_input import (
    HEADERS,
    assert_answered,
    build_document,
    headers_of,
    render,
)

OPERATIONS = [
    (route, method, operation)
    for route in ROUTES
    for method, operations in route.methods.items()
    for operation in operations
]
texts = st.sampled_from((*TEXTS, *ODD_TEXTS)) | st.text(max_size=60)

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def store(tmp_path: Any) -> Iterator[SqlStore]:
    made = open_store(DatabaseSettings(f"sqlite:///{tmp_path}/db.sqlite"))
    metadata.create_all(made.engine)
    agent = register(made)
    made.apply_changes(agent, [create(agent, "n1", guests=(make_guest(),))], 60)
    yield made
    made.close()


def sum_used(store: SqlStore) -> list[tuple[int, int]]:
    return [(node.values.vcpus_used, node.values.memory_mb_used) for node in store.list_nodes()]


def test_any_request_is_answered_and_changes_no_other_usage(store: SqlStore) -> None:
    api = Api(make_backend(store))

    @settings(max_examples=6000)
    @given(st.sampled_from(OPERATIONS), texts, json_values, st.data())
    def check(chosen: Any, text: str, value: Any, data: st.DataObject) -> None:
        route, method, operation = chosen
        names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
        parameters = {name: quote(data.draw(texts), safe="", errors="replace") for name in names}
        path = render(route, **parameters) if data.draw(st.booleans()) else render(route)
        known = sorted(operation.query["properties"])
        if known:
            path += f"?{data.draw(st.sampled_from(known))}={quote(text, safe='', errors='replace')}"
        body = b""
        if operation.body is not None:
            document = WHOLE if route.path == "/v1/claims" else build_document(operation.body)
            places = [(), *list_places(document)]
            body = json.dumps(spoil(document, data.draw(st.sampled_from(places)), value)).encode()
        headers = headers_of(route.path, operation)
        name = data.draw(st.sampled_from(HEADERS))
        if text.isprintable() and text.isascii():
            headers = {name: text[:4000], **headers}
        with limited():
            assert_answered(api.request(method, path, headers=headers, body=body))

    ((vcpus, memory_mb),) = sum_used(store)
    check()
    active = [claim.amounts for claim in store.list_claims() if claim.is_active]
    vcpus += sum(amounts.vcpu_milli for amounts in active) // MILLI
    assert sum_used(store) == [(vcpus, memory_mb + sum(amounts.memory_mb for amounts in active))]
