"""Requests in which a move between two nodes of one agent changes both consumers."""

from dataclasses import replace

import pytest

from nodetracker.accounting.placement.consumers import list_joint_nodes, plan_moves
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.steps import ReadConsumer, WriteConsumers
from nodetracker.accounting.placement.tree import (
    ConsumerType,
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
)
from tests.placement_model import NODE, make_claim, make_move, make_node

SECOND, THIRD = "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"
SOURCE = make_claim(1)
DEST = replace(make_claim(2, workload=1, vcpu_milli=4000), nodename="node-2")
MOVE = make_move(1, SOURCE, DEST)
WEB = SOURCE.workload.uuid
OLD = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}


def make_nodes(*claims):
    first = make_node([SOURCE, *claims], moves=[MOVE])
    second = make_node([DEST], moves=[MOVE])
    return [first, replace(second, uuid=SECOND, nodename="node-2", id=2)]


def make_placed(**web):
    consumer = {
        "resources": {NODE: OLD}, "is_whole": True, "type": ConsumerType.INSTANCE,
        "project_id": "p1", "user_id": "u1",
    }  # fmt: skip
    found = PlacedConsumer(WEB, 7, **(consumer | web))
    return [
        PlacedTree({NODE: PlacedProvider(NODE, "node-1", 3)}, {WEB: found}),
        PlacedTree({SECOND: PlacedProvider(SECOND, "node-2", 3)}),
    ]


def plan(placed, nodes=None):
    return list(plan_moves(placed, [describe_tree(n, False) for n in nodes or make_nodes()]))


def test_the_source_goes_to_the_migration_as_the_workload_gets_the_destination() -> None:
    (step,) = plan(make_placed())
    assert isinstance(step, WriteConsumers)
    assert [(w.uuid, w.generation, w.type, dict(w.resources)) for w in step.writes] == [
        (MOVE.migration.uuid, None, ConsumerType.MIGRATION, {NODE: OLD}),
        (WEB, 7, ConsumerType.INSTANCE, {SECOND: {"VCPU": 4}}),
    ]


def test_what_a_workload_has_of_other_agents_is_kept() -> None:
    (step,) = plan(make_placed(resources={NODE: OLD, THIRD: {"VCPU": 1}}))
    assert step.writes[1].resources == {SECOND: {"VCPU": 4}, THIRD: {"VCPU": 1}}


def test_a_consumer_of_which_only_a_part_is_known_is_read_first() -> None:
    assert plan(make_placed(is_whole=False, type="")) == [ReadConsumer(WEB)]


@pytest.mark.parametrize(
    "placed",
    [
        make_placed(type="INSTANCE"),
        make_placed(resources={NODE: OLD | {"VCPU": 3}}),
        make_placed()[:1],
    ],
    ids=["another's", "the source would have less", "a provider does not exist"],
)
def test_what_does_not_fit_is_left_to_each_node(placed) -> None:
    assert plan(placed) == []


def test_a_workload_with_a_second_claim_on_its_source_is_left_to_each_node() -> None:
    assert plan(make_placed(), make_nodes(make_claim(3, workload=1, vcpu_milli=1000))) == []


def test_nodes_are_joint_while_a_workload_moves_between_them() -> None:
    assert [list_joint_nodes(node) for node in make_nodes()] == [{"node-2"}, {"node-1"}]
    elsewhere = make_move(2, SOURCE, replace(DEST, host="host-2"))
    assert list_joint_nodes(make_node([SOURCE], moves=[elsewhere])) == set()
