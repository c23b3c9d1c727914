"""Why nodes are no candidates: each store counts what the ledger's rule refuses on each node."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.claims import evaluate_candidate
from nodetracker.accounting.ledger.exclusions import NearMiss, count_misses, evaluate_miss
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.db.exclusions import count_exclusions
from nodetracker.db.schema.tables import compute_nodes
from nodetracker.db.screens import accepts_claims, is_exempt, list_values, map_checks, shape_of
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.ports import AdmissionPolicy, Store
from tests.builders import SINCE, ask, create, make_values, register
from tests.contract.random_fleet import HOSTS, POLICY, RandomFleet
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements

OF_SERVICE = {
    AdmissionCheck.SERVICE, AdmissionCheck.ENABLED, AdmissionCheck.MAINTENANCE, AdmissionCheck.UP,
    AdmissionCheck.SPARE,
}  # fmt: skip


def add_node(store: SqlStore, host: str, columns: Mapping[str, Any]) -> None:
    """Add an empty node without overcommitment of CPUs, with these columns."""
    agent = register(store, host, f"agent-of-{host}")
    values = make_values(**{"facts": {}, "cpu_used": 0.0, "cpu_allocation_ratio": 1.0, **columns})
    store.apply_changes(agent, [create(agent, "n1", values)], 60)


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
                evaluate_candidate(request, assume_locked(node, uuid), policy),
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
    assert len(seen) == len(AdmissionCheck), seen


def test_of_equally_near_nodes_the_first_by_the_bytes_of_its_name_is_the_nearest(
    store: Store,
) -> None:
    for host in ("b", "a", "C"):
        agent = register(store, host, f"agent-of-{host}")
        store.apply_changes(agent, [create(agent, "n1", make_values(facts={}))], 60)
    nearest = store.count_exclusions(ask(VCPU=10_000), POLICY).nearest
    assert nearest is not None
    assert nearest.host == "C"


def is_by_columns(node: LedgerNode, request: ClaimRequest, checks: set[AdmissionCheck]) -> bool:
    """Return whether columns decide which checks a node fails for a request."""
    known = {claim.workload.uuid for claim in node.claims} | {*node.unclaimed, *node.larger}
    return (
        len(OF_SERVICE & checks) <= 1
        and not list_left(request) & checks
        and node.values.tracks_resources
        and request.workload.uuid not in known
    )


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_the_nearest_nodes_fail_the_fewest_checks_by_their_columns(store: SqlStore) -> None:
    fleet = RandomFleet(store, 4, nodes=24)
    nodes = read_all(store)
    seen: Counter[int] = Counter()
    for _ in range(60):
        request = fleet.make_request()
        evaluated = evaluate_all(nodes, request)
        found = store.find_nearest(request, POLICY, len(nodes))
        assert sorted(found) == sorted(node.id for node, _ in evaluated), request
        assert store.find_nearest(request, POLICY, 3) == found[:3]
        checks = {node.id: set(miss.checks if miss else ()) for node, miss in evaluated}
        sure = {node.id for node, _ in evaluated if is_by_columns(node, request, checks[node.id])}
        failed = [len(checks[node_id]) for node_id in found if node_id in sure]
        assert failed == sorted(failed), request
        seen.update(failed)
    assert all(seen[number] >= 10 for number in range(4)), seen


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_of_nodes_that_fail_as_many_checks_the_nearest_lack_the_least(store: SqlStore) -> None:
    nodes = (
        ("small", {"vcpus": 2}), ("large", {"vcpus": 3}), ("also-large", {"vcpus": 3}),
        ("little", {"vcpus": 3, "memory_mb": 256}), ("disabled", {"vcpus": 8}),
    )  # fmt: skip
    for host, columns in nodes:
        add_node(store, host, columns)
    disabled = ServiceChange(disabled=True, disabled_reason="disk")
    store.set_service("disabled", COMPUTE_BINARY, disabled)
    names = {node.id: node.host for node in store.list_nodes()}
    found = store.find_nearest(ask(VCPU=4, MEMORY_MB=512), POLICY, 10)
    assert [names[id_] for id_ in found] == ["also-large", "large", "small", "disabled", "little"]


def list_left(request: ClaimRequest) -> set[AdmissionCheck]:
    """Return the checks that columns leave to the rule."""
    found = {AdmissionCheck.PCI, AdmissionCheck.NUMA}
    found |= {AdmissionCheck.CLASSES} if any(request.amounts.resources.values()) else set()
    if request.numa is not None and request.numa.page_size in ("large", "any"):
        found.add(AdmissionCheck.ORDINARY_RAM)
    return found


def read_failed(store: SqlStore, request: ClaimRequest) -> dict[int, set[AdmissionCheck | None]]:
    """Return node id -> the checks whose conditions are false there, None for a service's."""
    of_row = map_checks(shape_of(request))
    checks: dict[AdmissionCheck | None, sa.ColumnElement[bool]] = {
        check: sa.or_(passes, is_exempt()) for check, passes in of_row.items()
    }
    checks[None] = accepts_claims(shape_of(request), POLICY.service_down_time)
    flags = (sa.case((condition, 0), else_=1) for condition in checks.values())
    query = sa.select(compute_nodes.c.id, *flags)
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
    seen: Counter[AdmissionCheck | None] = Counter()
    for _ in range(60):
        request = dataclasses.replace(fleet.make_request(), host=None, nodename=None)
        left = list_left(request)
        failed = read_failed(store, request)
        for node, miss in evaluate_all(nodes, request):
            checks = () if miss is None else miss.checks
            refused = {None if check in OF_SERVICE else check for check in checks}
            if request.workload.uuid in guests[node.id]:  # by any amount
                assert failed[node.id] - amounts <= refused, request
                continue
            assert failed[node.id] <= refused, request
            assert refused - failed[node.id] <= left, request
            seen.update(failed[node.id])
    assert len(seen) == 9, seen  # all but NUMA cells and PCI devices


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("most", [3, 5])
def test_in_a_large_fleet_counts_are_those_of_the_nearest_nodes_whose_service_accepts_claims(
    store: SqlStore, most: int
) -> None:
    """A few nodes stand for as many as a real fleet allows."""
    fleet = RandomFleet(store, 3, nodes=24)
    nodes = read_all(store)
    for _ in range(40):
        request = fleet.make_request()
        with store.engine.connect() as connection, count_statements(store) as statements:
            found = count_exclusions(connection, request, POLICY, max_evaluated=most)
        assert len(statements) <= 6
        misses = [miss for _, miss in evaluate_all(nodes, request)]
        expected = count_misses(misses)
        if expected.total <= most:
            assert found == expected, request
            continue
        assert (found.total, found.lower_bounds) == (expected.total, set(AdmissionCheck))
        assert Counter(found.counts) <= Counter(expected.counts), request
        accepting = [m for m in misses if m is None or not OF_SERVICE & set(m.checks)]
        if len(accepting) >= most:
            assert not OF_SERVICE & found.counts.keys(), request


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_the_nearest_nodes_fail_the_fewest_checks_and_lack_the_least_but_closed_ones_come_last(
    store: SqlStore,
) -> None:
    unknown = {"cpu": FactEntry(FactState.UNKNOWN, "test", SINCE, "away")}
    nodes = (
        ("disabled", {"vcpus": 8}), ("unknown", {"vcpus": 1, "facts": unknown}),
        ("small", {"vcpus": 2}), ("large", {"vcpus": 3}),
    )  # fmt: skip
    for host, columns in nodes:
        add_node(store, host, columns)
    disabled = ServiceChange(disabled=True, disabled_reason="disk")
    store.set_service("disabled", COMPUTE_BINARY, disabled)
    order = [host for host, _ in reversed(nodes)]
    for most in range(1, len(order)):
        with store.engine.connect() as connection:
            found = count_exclusions(connection, ask(VCPU=4), POLICY, max_evaluated=most)
        misses = [found.nearest, *found.further]
        assert [miss and miss.host for miss in misses] == order[:most]
        assert (found.total, found.counts[AdmissionCheck.CPU]) == (len(order), most)
