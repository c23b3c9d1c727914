"""Why nodes are no candidates: each store counts what the ledger's rule refuses on each node."""

import dataclasses
from collections import Counter

import pytest

from nodetracker.accounting.ledger.exclusions import (
    Exclusions,
    count_exclusions,
    evaluate_miss,
)
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy, Store
from nodetracker.scheduler.host_state import HostState
from tests.contract.random_fleet import HOSTS, POLICY, RandomFleet


def read_all(store: Store) -> list[HostState]:
    ids = [record.id for host in HOSTS for record in store.load_nodes(host)]
    return [HostState(node) for node in store.load_ledger_nodes(ids)]


def evaluate_all(
    states: list[HostState], request: ClaimRequest, policy: AdmissionPolicy
) -> Exclusions:
    return count_exclusions(
        evaluate_miss(*state.key, state.evaluate(request, policy))
        for state in states
        if request.host in (None, state.key[0]) and request.nodename in (None, state.key[1])
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_counted_is_what_the_ledger_refuses_on_each_node(store: Store, seed: int) -> None:
    fleet = RandomFleet(store, seed, nodes=16)
    states = read_all(store)
    seen: Counter[str] = Counter()
    for number in range(40):
        policy = dataclasses.replace(POLICY, service_down_time=-1) if number == 0 else POLICY
        request = fleet.make_request()
        expected = evaluate_all(states, request, policy)
        assert store.count_exclusions(request, policy) == expected, request
        seen.update(expected.counts)
    assert len(seen) == 13, seen
