"""Why nodes are no candidates: each store counts what the ledger's rule refuses on each node."""

import dataclasses
from collections import Counter

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.exclusions import NearMiss, count_misses, evaluate_miss
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.db.exclusions import count_exclusions
from nodetracker.db.schema.tables import WITH_SERVICE, compute_nodes
from nodetracker.db.screens import is_exempt, list_values, map_checks, map_service_checks, shape_of
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
        expected = count_misses([miss for _, miss in evaluate_all(nodes, request, policy)])
        assert store.count_exclusions(request, policy) == expected, request
        seen.update(expected.counts)
    assert len(seen) == 14, seen


def test_of_equally_near_nodes_the_first_by_the_bytes_of_its_name_is_the_nearest(
    store: Store,
) -> None:
    for host in ("b", "a", "C"):
        agent = register(store, host, f"agent-of-{host}")
        store.apply_changes(agent, [create(agent, "n1", make_values(facts={}))], 60)
    nearest = store.count_exclusions(ask(VCPU=10_000), POLICY).nearest
    assert nearest is not None
    assert nearest.host == "C"


def list_open(request: ClaimRequest) -> set[AdmissionCheck]:
    """Return the checks that columns leave to the rule."""
    found = {AdmissionCheck.CLASSES} if any(request.amounts.resources.values()) else set()
    if request.numa is not None and request.numa.page_size in ("large", "any"):
        found.add(AdmissionCheck.ORDINARY_RAM)
    if all(item.alias in POLICY.aliases for item in request.pci_requests):
        found |= {AdmissionCheck.PCI} if request.pci_requests else set()
        found |= {AdmissionCheck.NUMA} if request.numa is not None else set()
    return found


def read_failed(store: SqlStore, request: ClaimRequest) -> dict[int, set[AdmissionCheck]]:
    """Return node id -> the checks whose conditions are false there."""
    of_row = map_checks(shape_of(request))
    checks = {check: sa.or_(passes, is_exempt()) for check, passes in of_row.items()}
    checks |= map_service_checks(POLICY.service_down_time)
    flags = (sa.case((sa.not_(condition), 1), else_=0) for condition in checks.values())
    query = sa.select(compute_nodes.c.id, *flags).select_from(WITH_SERVICE)
    with store.engine.connect() as connection:
        return {
            node_id: {check for check, flag in zip(checks, failed, strict=True) if flag}
            for node_id, *failed in connection.execute(query, list_values(request))
        }


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_conditions_are_never_stricter_than_the_rule_and_exact_but_for_what_they_leave_to_it(
    store: SqlStore,
) -> None:
    fleet = RandomFleet(store, 2, nodes=24)
    nodes = read_all(store)
    guests = {record.id: record.guests for host in HOSTS for record in store.load_nodes(host)}
    amounts = set(AMOUNT_CHECKS.values())
    seen: Counter[str] = Counter()
    for _ in range(60):
        request = dataclasses.replace(fleet.make_request(), host=None, nodename=None)
        left = list_open(request) | {AdmissionCheck.PCI}  # no condition knows the aliases
        failed = read_failed(store, request)
        for node, miss in evaluate_all(nodes, request):
            refused = set() if miss is None else set(miss.checks)
            if request.workload.uuid in guests[node.id]:  # by any amount
                assert failed[node.id] - amounts <= refused, request
                continue
            assert failed[node.id] <= refused, request
            assert refused - failed[node.id] <= left, request
            seen.update(failed[node.id])
    assert len(seen) == 12, seen  # all but NUMA cells and PCI devices


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("most", [3, 5])
def test_what_columns_leave_to_the_rule_is_counted_where_all_else_passes_in_a_large_fleet(
    store: SqlStore, most: int
) -> None:
    """A few nodes that pass everything else stand for as many as a real fleet allows."""
    fleet = RandomFleet(store, 3, nodes=24)
    nodes = sorted(read_all(store), key=lambda node: node.id)
    guests = {record.id: record.guests for host in HOSTS for record in store.load_nodes(host)}
    seen: Counter[str] = Counter()
    for _ in range(40):
        request = fleet.make_request()
        with store.engine.connect() as connection, count_statements(store) as statements:
            found = count_exclusions(connection, request, POLICY, max_evaluated=most)
        assert len(statements) <= 8
        evaluated = evaluate_all(nodes, request)
        expected = count_misses([miss for _, miss in evaluated])
        left = list_open(request)
        if expected.total <= most or not left:
            assert found == expected, request
            continue
        failed = read_failed(store, request)
        own = [miss for node, miss in evaluated if request.workload.uuid in guests[node.id]]
        others = [
            (failed[node.id], miss)
            for node, miss in evaluated
            if request.workload.uuid not in guests[node.id]
        ]
        passing = [miss for checks, miss in others if not checks & set(expected.counts)]
        read = count_misses([*own, *passing[:most]]).counts
        lacking = Counter(check for checks, _ in others for check in checks & left)
        counts = {check: n for check, n in expected.counts.items() if check not in left}
        counts |= {check: n for check in left if (n := read.get(check, 0) + lacking[check])}
        assert dict(found.counts) == counts, request
        assert (found.total, found.lower_bounds) == (expected.total, left)
        assert found.nearest in [miss for _, miss in evaluated]
        seen.update(read)
    assert {AdmissionCheck.CLASSES, AdmissionCheck.NUMA, AdmissionCheck.PCI} <= seen.keys()


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_nodes_whose_limits_are_not_of_their_row_are_left_to_the_rule(store: SqlStore) -> None:
    """A program of an earlier version has written them."""
    fleet = RandomFleet(store, 4, nodes=24)
    spoiled = {
        "generation": compute_nodes.c.generation + 1,
        "vcpu_milli_limit": 0,
        "admission_flags": 2,
    }
    with store.engine.begin() as connection:
        connection.execute(
            sa.update(compute_nodes).where(compute_nodes.c.id % 2 == 0).values(spoiled)
        )
    nodes = read_all(store)
    for _ in range(20):
        request = fleet.make_request()
        expected = count_misses([miss for _, miss in evaluate_all(nodes, request)])
        assert store.count_exclusions(request, POLICY) == expected, request
        with store.engine.connect() as connection:
            found = count_exclusions(connection, request, POLICY, max_evaluated=3)
        if expected.total > 3:
            assert found.total == expected.total
            for check in AdmissionCheck:
                wanted, counted = expected.counts.get(check, 0), found.counts.get(check, 0)
                is_bound = check in found.lower_bounds
                assert counted <= wanted if is_bound else counted == wanted, (check, request)
