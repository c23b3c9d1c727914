"""The number of statements of a request to the REST service does not depend on the number of rows."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.api.call import Backend
from nodetracker.db.store import SqlStore
from nodetracker.model.pci_request import Alias, AliasSpec
from nodetracker.model.service import AuditState
from nodetracker.scheduler.scheduler import Scheduler
from nodetracker.settings import AdmissionPolicy
from tests.contract.stores import SQL_BACKENDS
from tests.contract.test_ledger import make_node
from tests.contract.values import create, make_device, register
from tests.statements import SeenStatements, count_statements
from tests.unit.api.conftest import Api, api, backend  # noqa: F401 - fixtures, on this store
from tests.unit.api.placing import make_node_values

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)

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


@pytest.mark.parametrize("count", [10, 1000])
def test_a_page_of_a_list_is_at_most_two(store: SqlStore, api: Api, count: int) -> None:  # noqa: F811
    agent = register(store)
    store.report_state(agent, 1, AuditState())
    for first in range(0, count, 100):
        names = [f"n{number}" for number in range(first, min(first + 100, count))]
        store.apply_changes(agent, [create(agent, name, make_node_values()) for name in names], 60)
    for number in range(10):
        body = make_body(host="alpha", nodename=f"n{number}")
        assert api.request("POST", "/v1/claims", json=body).status_code == 201
    for path, noun, listed in (
        ("/v1/claims", "claims", 10),
        ("/v1/claims?host=alpha&state=held&limit=5", "claims", 5),
        ("/v1/migrations", "migrations", 0),
        ("/v1/candidates?resources=MEMORY_MB:1&limit=10", "candidates", 10),
    ):
        with count_statements(store) as seen:
            assert len(api.get(path)[noun]) == listed
        assert len(seen) <= 2, path


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (PLAIN, 1),
        ({"resources": {"PCPU": 1}, "numa": {"cpu_policy": "dedicated"}}, 5),
        ({"resources": {"VCPU": 1}, "pci_requests": [{"alias": "nic"}]}, 5),
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
    assert len(repeated) <= len(placed)
    path = f"/v1/claims/{named['uuid']}"
    assert len(send(service, store, "GET", path, 200)) == 1
    with count_statements(store) as by_ledger:
        store.abort_claim(with_host["uuid"])
    assert len(send(service, store, "DELETE", path, 200)) == len(by_ledger)
