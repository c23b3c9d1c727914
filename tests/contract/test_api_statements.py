"""The number of statements of a request to the REST service does not depend on the number of rows."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.api.call import Backend
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.db.store import SqlStore
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.usecases.scheduler import Scheduler
from tests.bench.large_fleet import LargeFleet
from tests.bench.lists import LISTS, make_counter
from tests.builders import make_device, make_node
from tests.contract.stores import SQL_BACKENDS
from tests.statements import SeenStatements, count_statements
from tests.unit.api.conftest import (
    Api,
    api,  # noqa: F401 - fixtures, on this store
    backend,  # noqa: F401
    make_backend,
)

REQUESTS = LISTS | {
    "claims of a host": ("/v1/claims?host=host-00003&state=held&limit=5", {}),
    "ten candidates": ("/v1/candidates?resources=MEMORY_MB:1&limit=10", {}),
    "all candidates": ("/v1/candidates?resources=MEMORY_MB:1&all=true", {}),
    "search": ("/v1/search?text=host-0", {}),
    "search by uuid": ("/v1/search?text=abcd", {}),
    "no candidates": ("/v1/candidates?resources=VCPU:100000", {}),
    "no candidates, unexplained": ("/v1/candidates?resources=VCPU:100000&explain=false", {}),
}
MAX_OF_A_PAGE = 2
MOST = {
    "statistics": 1,
    "with servers": 3,
    "/v1/hosts": 3,
    "/v1/nodes": 3,  # what is unclaimed, too
    "/v1/candidates": 3,
    "ten candidates": 3,
    "all candidates": 4,
    "search": 6 + 2,  # the overview, if none is kept
    "search by uuid": 6 + 4,
    "no candidates": 3 + 2 + 4 * 5,  # 1,000 nodes are evaluated in five parts
    "no candidates, unexplained": 3,
}
"""Requests that may take another number of statements than a page of a list."""

SEARCHES = {"/v1/candidates", "ten candidates", "all candidates", "no candidates"}

OVERVIEW = "/v1/overview"
MAX_OF_AN_OVERVIEW = 6

PLAIN = {"resources": {"MEMORY_MB": 1}}


def make_body(**more: Any) -> dict[str, Any]:
    return PLAIN | {"uuid": str(uuid.uuid4()), "workload": {"uuid": str(uuid.uuid4())}} | more


def send(
    service: Api, store: SqlStore, method: str, path: str, wanted: int, **options: Any
) -> SeenStatements:
    """Return the statements of a request that succeeds."""
    with count_statements(store) as seen:
        found = service.request(method, path, **options)
    assert found.status_code == wanted, found.text
    return seen


@pytest.mark.parametrize("stores", ["sqlite", "mariadb"], indirect=True)
def test_the_number_of_nodes_changes_no_number_of_statements(
    store: SqlStore, tmp_path: Path
) -> None:
    fleet = LargeFleet(store, tmp_path, workloads=1)
    count = make_counter(store)
    counted = []
    for nodes in (10, 1000):
        fleet.grow(nodes)
        counted.append({name: count("GET", *request) for name, request in REQUESTS.items()})
    few, many = counted
    # Of the first places, if there are fewer nodes than are weighed; and of parts that are evaluated.
    assert {name for name in REQUESTS if few[name] != many[name]} <= SEARCHES
    for name, statements in many.items():
        assert statements <= MOST.get(name, MAX_OF_A_PAGE), name


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize(
    ("body", "most"),
    [
        (PLAIN, 3),
        ({"resources": {"PCPU": 1}, "numa": {"cpu_policy": "dedicated"}}, 7),
        ({"resources": {"VCPU": 1}, "pci_requests": [{"alias": "nic"}]}, 7),
    ],
    ids=["plain", "numa", "pci"],
)
def test_a_claim_is_the_ledgers_own_and_without_a_host_few_more(
    store: SqlStore,
    backend: Backend,  # noqa: F811
    body: dict[str, Any],
    most: int,
) -> None:
    for number in range(10):
        make_node(store, devices=(make_device(),), host=f"h{number}")
    policy = AdmissionPolicy(60, 600, aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),))})
    service = Api(replace(backend, policy=policy, scheduler=Scheduler(store, policy)))
    named = make_body(host="h0", nodename="node-1") | body
    with count_statements(store) as by_ledger:
        store.create_claim(parse_claim_request(make_body() | body), "h1", "node-1", policy)
    claimed = send(service, store, "POST", "/v1/claims", 201, json=named)
    assert len(claimed) == len(by_ledger)
    with_host = make_body(host="h2") | body
    assert len(send(service, store, "POST", "/v1/claims", 201, json=with_host)) == len(claimed) + 1
    anywhere = make_body() | body
    placed = send(service, store, "POST", "/v1/claims", 201, json=anywhere)
    assert len(placed) - len(claimed) <= most
    repeated = send(service, store, "POST", "/v1/claims", 200, json=anywhere)
    assert len(repeated) == 2, "whether there is one, and the claim"
    without_uuid = {key: value for key, value in (make_body() | body).items() if key != "uuid"}
    placed = send(service, store, "POST", "/v1/claims", 201, json=without_uuid)
    assert len(placed) - len(claimed) <= most
    path = f"/v1/claims/{named['uuid']}"
    assert len(send(service, store, "GET", path, 200)) == 1
    with count_statements(store) as by_ledger:
        store.abort_claim(with_host["uuid"])
    assert len(send(service, store, "DELETE", path, 200)) == len(by_ledger)


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_many_viewers_of_the_overview_take_as_many_statements_as_one(store: SqlStore) -> None:
    make_node(store)
    made = make_backend(store)
    settings = replace(made.settings, overview_max_age=3600)
    service = Api(replace(made, settings=settings, fleet=FleetCache(store, settings)))
    with count_statements(store) as seen, ThreadPoolExecutor(16) as viewers:
        tags = list(
            viewers.map(lambda _: service.request("GET", OVERVIEW).headers["ETag"], range(50))
        )
    assert len(seen) == MAX_OF_AN_OVERVIEW
    headers = {"If-None-Match": tags[0]}
    assert not send(service, store, "GET", OVERVIEW, 304, headers=headers)
    assert not send(service, store, "GET", "/metrics", 200)
    assert set(tags) == {tags[0]}
