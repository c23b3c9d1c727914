"""Why nodes are no candidates: each store counts what the ledger's rule refuses on each node."""

import dataclasses
from collections import Counter

import pytest

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.exclusions import NearMiss, count_misses, evaluate_miss
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.db.exclusions import count_exclusions
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.ports import AdmissionPolicy, Store
from tests.builders import ask, create, make_values, register
from tests.contract.random_fleet import HOSTS, POLICY, RandomFleet
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements


def read_all(store: Store) -> list[LedgerNode]:
    ids = [record.id for host in HOSTS for record in store.load_nodes(host)]
    return store.load_ledger_nodes(ids)


def evaluate_all(
    nodes: list[LedgerNode], request: ClaimRequest, policy: AdmissionPolicy = POLICY
) -> list[tuple[LedgerNode, NearMiss | None]]:
    """Evaluate the nodes that a request may name by the ledger's rule."""
    uuid = request.workload.uuid
    return [
        (
            node,
            evaluate_miss(
                node.host,
                node.nodename,
                evaluate_claim(request, assume_locked(node, uuid), policy),
            ),
        )
        for node in nodes
        if request.host in (None, node.host) and request.nodename in (None, node.nodename)
    ]


def test_what_is_counted_is_what_the_ledger_refuses_on_each_node(store: Store) -> None:
    fleet = RandomFleet(store, 1, nodes=24)
    nodes = read_all(store)
    seen: Counter[str] = Counter()
    for number in range(30):
        policy = dataclasses.replace(POLICY, service_down_time=-1) if number == 0 else POLICY
        request = fleet.make_request()
        expected = count_misses(miss for _, miss in evaluate_all(nodes, request, policy))
        assert store.count_exclusions(request, policy) == expected, request
        seen.update(expected.counts)
    assert len(seen) == 13, seen


def test_of_equally_near_nodes_the_first_by_the_bytes_of_its_name_is_the_nearest(
    store: Store,
) -> None:
    for host in ("b", "a", "B"):
        agent = register(store, host, f"agent-of-{host}")
        store.apply_changes(agent, [create(agent, "n1", make_values(facts={}))], 60)
    nearest = store.count_exclusions(ask(VCPU=10_000), POLICY).nearest
    assert nearest is not None
    assert nearest.host == "B"


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_numa_and_pci_of_a_large_fleet_are_counted_where_all_else_passes(store: SqlStore) -> None:
    """Three nodes that pass everything else stand for as many as a real fleet allows."""
    fleet = RandomFleet(store, 3, nodes=24)
    nodes = sorted(read_all(store), key=lambda node: node.id)
    guests = {record.id: record.guests for host in HOSTS for record in store.load_nodes(host)}
    seen: Counter[str] = Counter()
    for _ in range(40):
        request = fleet.make_request()
        placed = {AdmissionCheck.NUMA} if request.numa is not None else set()
        placed |= {AdmissionCheck.PCI} if request.pci_requests else set()
        if not placed or any(item.alias == "other" for item in request.pci_requests):
            continue
        with store.engine.connect() as connection, count_statements(store) as statements:
            found = count_exclusions(connection, request, POLICY, max_evaluated=3)
        assert len(statements) <= 8
        evaluated = evaluate_all(nodes, request)
        expected = count_misses(miss for _, miss in evaluated)
        if expected.total <= 3:
            assert found == expected
            continue
        own, passing = [], []
        for node, miss in evaluated:
            if request.workload.uuid in guests[node.id]:
                own.append(miss)
            elif miss is None or set(miss.checks) <= placed:
                passing.append(miss)
        read = count_misses([*own, *passing[:3]]).counts
        counts = {check: n for check, n in expected.counts.items() if check not in placed}
        counts |= {check: read[check] for check in placed if read[check]}
        assert dict(found.counts) == counts, request
        assert (found.total, found.lower_bounds) == (expected.total, placed)
        seen.update(read)
    assert {AdmissionCheck.NUMA, AdmissionCheck.PCI} <= seen.keys()
