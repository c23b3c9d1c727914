"""Over random ledgers, placement offers no more than the ledger grants, after every step too."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.placement.consumers import Findings, plan_consumers
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.plan import plan
from nodetracker.accounting.placement.steps import SetInventories
from nodetracker.accounting.placement.tree import PlacedTree
from nodetracker.model.errors import PlacementRefusedError
from nodetracker.placement.reconciler import Reconciler
from nodetracker.placement.state import NodeState
from tests.placement_model import NODE, PlacementModel, make_random_node

SEEDS = st.integers(0, 2**32)


def offered(model: PlacementModel, name: str) -> int:
    """Return what placement would allocate of a class in addition."""
    provider = model.providers.get(NODE)
    if provider is None or name not in provider.inventories:
        return 0
    return max(0, provider.inventories[name].capacity - model.used(NODE)[name])


@settings(max_examples=300, deadline=None, database=None)
@given(SEEDS)
def test_whatever_is_allocated_no_more_is_offered_than_the_ledger_would_grant(seed) -> None:
    rng = random.Random(seed)
    tree = describe_tree(make_random_node(rng), False)
    chosen = [c for c in tree.consumers.values() if rng.random() < 0.7]
    for name, ledger in tree.root.classes.items():
        allocated, covered = {}, 0
        for consumer in chosen:
            amount = consumer.resources[NODE].get(name, 0) * rng.choice((1, 1, 2))
            allocated[consumer.workload_uuid] = allocated.get(consumer.workload_uuid, 0) + amount
        for workload, amount in allocated.items():
            covered += min(amount * ledger.parts, ledger.charges.get(workload, 0))
        reserved = ledger.reserved_for(allocated)
        assert min(ledger.reserved, ledger.total) <= reserved <= ledger.total
        left = ledger.inventory(reserved).capacity * ledger.parts - covered
        assert left <= max(ledger.grantable, -covered)
        if reserved > ledger.reserved and reserved < ledger.total and ledger.grantable >= 0:
            # Less than one unit of the inventory is lost.
            unit = ledger.parts * (max(1, ledger.allocation_ratio) + 1)
            assert ledger.grantable - left <= unit + (ledger.parts * ledger.allocation_ratio)


@settings(max_examples=150, deadline=None, database=None)
@given(SEEDS)
def test_after_each_step_no_more_is_offered_than_granted_or_than_before(seed) -> None:
    rng = random.Random(seed)
    model, removable = PlacementModel(), set()
    for _ in range(4):
        tree = describe_tree(make_random_node(rng), rng.random() < 0.3)
        before = {name: offered(model, name) for name in tree.root.classes}
        removable |= tree.consumers.keys()
        done = model.tree()
        findings = Findings(removable=frozenset(removable))
        for step in plan(done, tree, findings):
            is_lowering = isinstance(step, SetInventories) and NODE in done.providers
            done_before, done = done, send(model, done, step)
            if done is None:  # refused, or refused before: the rest follows from what is there
                break
            for name, entry in tree.root.classes.items():
                most = max(entry.grantable // entry.parts, before[name])
                if is_lowering and offered(model, name) > most:
                    assert needs_room(done_before, tree, findings, name)
                    before[name] = offered(model, name)
                assert offered(model, name) <= max(most, before[name])


def send(model: PlacementModel, placed: PlacedTree, step) -> PlacedTree | None:
    model.traits |= getattr(step, "traits", frozenset())
    try:
        return Reconciler(model, None, None)._send(placed, step)
    except PlacementRefusedError:
        return None


def needs_room(placed: PlacedTree, tree, findings, name: str) -> bool:
    """Return whether new allocations of a class do not fit next to what is reserved for them."""
    consumers, key = plan_consumers(placed, tree, findings), (NODE, name)
    return consumers.after[key] > consumers.before[key]


def summarize(placed: PlacedTree) -> dict:
    return {uuid: (c.generation, c.resources) for uuid, c in placed.consumers.items()}


@settings(max_examples=150, deadline=None, database=None)
@given(SEEDS)
def test_a_walk_ends_where_a_first_report_would(seed) -> None:
    rng = random.Random(seed)
    model, state = PlacementModel(), NodeState()
    reconciler = Reconciler(model, lambda consumer: False, lambda seconds: None)
    for _ in range(5):
        tree = describe_tree(make_random_node(rng), rng.random() < 0.3)
        if rng.random() < 0.2:
            state = NodeState(wanted_before=state.wanted_before)
        reconciler.reconcile(state, tree)
        assert state.placed.providers == model.tree().providers
        assert summarize(state.placed) == summarize(model.tree())
        for name, entry in tree.root.classes.items():
            assert offered(model, name) <= max(entry.grantable // entry.parts, 0), name
            held = {u: c.resources[NODE].get(name, 0) for u, c in model.consumers.items()}
            wanted = {u: c.resources[NODE].get(name, 0) for u, c in tree.consumers.items()}
            assert held.keys() - state.refused.keys() == wanted.keys() - state.refused.keys()
            assert all(held[u] == wanted[u] for u in held.keys() - state.refused.keys())
        requests = len(model.requests)
        state.refused, refused = {}, state.refused
        reconciler.reconcile(state, tree)
        assert len(model.requests) - requests <= len(refused) * 4
