"""A page of a list is two or three statements, and reads no column that it does not show."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.columns import NODE_SHAPES
from nodetracker.db.store import SqlStore
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import Store
from tests.builders import ADMISSION_POLICY, create, key_of, make_device, make_guest, register
from tests.contract.stores import make_stores
from tests.statements import count_statements
from tests.unit.api.conftest import Api

COUNT = 30
UUID = "UUID"

LISTS = {
    "/v1/nodes": "nodes",
    "/v1/nodes?state=up&sort_key=host&marker=UUID": "nodes",
    "/v1/nodes/UUID/workloads": "workloads",
    "/v1/nodes/UUID/claims": "claims",
    "/v1/nodes/UUID/devices": "devices",
    "/v1/nodes/UUID/history": "history",
    "/v1/nodes/UUID/warnings": "warnings",
    "/v1/claims": "claims",
    "/v1/history?host=alpha": "history",
    "/v1/hosts": "hosts",
    "/v1/hosts?state=up&sort_key=fullness&with_count=true": "hosts",
    "/v1/nodes?sort_key=fullness&text=n&overcommitted=true&with_count=true": "nodes",
    "/v1/workloads?with_count=true": "workloads",
    "/v1/services": "services",
    "/v1/usages": "usages",
    "/v1/warnings?limit=7": "warnings",
    "/v1/warnings": "warnings",
    "/v1/warnings?host=alpha": "warnings",
    "/v1/workloads?host=alpha": "workloads",
}
"""Path -> noun; UUID is that of the first node."""


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path) -> Iterator[Store]:
    for maker in make_stores("sqlite", request, tmp_path):
        yield maker.open()


@pytest.fixture(autouse=True)
def rows(store: SqlStore) -> None:
    """Add nodes, each with a claim, a guest and a warning."""
    register(store)
    agent = key_of(store.list_services()[0])
    nodes = [
        create(agent, f"n{i}", guests=(make_guest(f"g{i}"),), devices=(make_device(),))
        for i in range(COUNT)
    ]
    store.apply_changes(agent, nodes, 60)
    kind = WarningKind.FACT_HELD
    store.sync_warnings(agent, [HostWarning(kind, f"n{i}", "cpu", "held") for i in range(COUNT)])
    for number in range(COUNT):
        workload = {"uuid": make_guest(f"claimed-{number}").uuid, "project_id": f"p{number}"}
        claim = parse_claim_request({"workload": workload, "resources": {"MEMORY_MB": 1}})
        store.create_claim(claim, "alpha", f"n{number}", ADMISSION_POLICY)


HYPERVISORS = "/v2.1/os-hypervisors"


@pytest.mark.parametrize(
    ("path", "version", "shown"),
    [
        (HYPERVISORS, "2.87", set()),
        (f"{HYPERVISORS}/detail", "2.1", {"cpu_info"}),
        (f"{HYPERVISORS}/detail", "2.87", {"cpu_info"}),
        (f"{HYPERVISORS}/detail", "2.88", {"last_audit"}),
        ("/container/v1/hosts", None, {"labels", "runtimes"}),
        ("/v1/nodes", None, {"reserved", "overhead", "last_audit"}),
    ],
)
def test_a_list_of_nodes_reads_only_what_it_shows(backend, store, path, version, shown):
    with count_statements(store) as seen:
        Api(replace(backend, store=store)).get(path, version)
    (statement,) = [text for text in seen.statements if "compute_nodes" in text]
    columns = set(re.findall(r"\b(?:compute_nodes|services)\.(\w+)", statement))
    assert columns & (NODE_SHAPES.keys() | {"last_audit"}) == shown
    assert not columns & {"topic", "version", "agent_id", "pid", "clock_skew_ms", "updated_at"}
    children = [text for text in seen.statements if "guests" in text or "claims" in text]
    assert len(children) == (path == "/v1/nodes")  # what is unclaimed


@pytest.mark.parametrize(("path", "noun"), LISTS.items())
def test_a_page_is_few_statements(backend, store, path, noun):
    api = Api(replace(backend, store=store))
    path = path.replace(UUID, store.list_nodes()[0].uuid)
    with count_statements(store) as seen:
        found = api.get(path)
    assert found[noun]
    assert len(seen) <= (3 if noun in ("hosts", "nodes") else 2)  # with what nodes have, or guests
