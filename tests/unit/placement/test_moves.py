"""Moves between two nodes of one agent, over a model of placement."""

from dataclasses import replace

import pytest

from nodetracker.model.audit import AuditReport
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import PlacementRefusedError, PlacementUnavailableError
from tests.placement_model import NODE, make_claim, make_move, make_node
from tests.programs import wait_until
from tests.unit.placement.scene import Scene

SECOND = "22222222-2222-4222-8222-222222222222"
SOURCE = make_claim(1)
DEST = replace(make_claim(2, workload=1, vcpu_milli=4000, memory_mb=4096), nodename="node-2")
MOVE = make_move(1, SOURCE, DEST)
WEB, MIGRATION = SOURCE.workload.uuid, MOVE.migration.uuid
OLD, NEW = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}, {"VCPU": 4, "MEMORY_MB": 4096}
MOVED = {WEB: {SECOND: NEW}, MIGRATION: {NODE: OLD}}


class TwoNodes(Scene):
    """One host with two nodes."""

    def audit(self, first=(), second=(), moves=(), **changes):
        self.generation += 1
        nodes = [
            make_node(first, moves=moves, generation=self.generation),
            replace(
                make_node(second, moves=moves, generation=self.generation, **changes),
                uuid=SECOND, nodename="node-2", id=2,
            ),
        ]  # fmt: skip
        self.reporter.audited(AuditReport(nodes={node.nodename: node for node in nodes}))

    def start_move(self):
        """Return the writes of consumers that the move takes."""
        requests = self.report([SOURCE], [DEST], [MOVE])
        return [subject for _, subject in requests if subject.startswith("allocations ")]


@pytest.fixture
def scene():
    scene = TwoNodes(workers=4)
    yield scene
    scene.reporter.stop(10)


def test_both_ends_are_changed_by_one_request(scene) -> None:
    scene.report([SOURCE])
    assert scene.report([SOURCE], [DEST], [MOVE]) == [("POST", "allocations 2")]
    assert scene.held() == MOVED
    scene.report([replace(SOURCE, state=ClaimState.RELEASED)], [DEST])
    assert scene.held() == {WEB: {SECOND: NEW}}
    # Each node's list and allocations; nothing else is read again.
    assert len(scene.refresh()) == 4


def test_nodes_that_cannot_be_described_are_reported_later(scene, monkeypatch) -> None:
    scene.report([SOURCE])
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("nodetracker.placement.reporter.describe_tree", fail)
        scene.audit([SOURCE], [DEST], [MOVE])
        wait_until(lambda: len(calls) == 3)  # both together, then each
        assert scene.reporter._slots.wait_idle(10)
    scene.wake(61)
    scene.settle()
    assert scene.held() == MOVED


def test_a_workload_is_read_first_after_a_restart(scene) -> None:
    scene.report([SOURCE])
    scene.restart()
    scene.report([SOURCE])
    requests = scene.report([SOURCE], [DEST], [MOVE])
    assert [method for method, _ in requests] == ["GET", "POST"]
    assert scene.held() == MOVED


def test_what_placement_refuses_each_node_writes_alone(scene) -> None:
    scene.report([SOURCE])

    def fail(method, subject):
        if subject == "allocations 2":
            raise PlacementRefusedError(method, "not together")

    scene.model.fail = fail
    assert "allocations 1" in scene.start_move()
    assert scene.held() == MOVED


def test_a_consumer_that_somebody_changed_is_read_and_written_alone(scene) -> None:
    scene.report([SOURCE])
    scene.model.allocate(WEB, OLD, "NODETRACKER_INSTANCE")
    assert scene.start_move()[0] == "allocations 2"
    assert scene.held() == MOVED


def test_others_consumers_are_left_alone(scene) -> None:
    scene.report()
    scene.model.allocate(WEB, {"VCPU": 1})
    before = scene.held()[WEB]
    scene.start_move()
    assert scene.held() == {WEB: before, MIGRATION: {NODE: OLD}}


def test_nodes_that_are_new_are_reported_one_by_one(scene) -> None:
    assert set(scene.start_move()) == {"allocations 1"}
    assert scene.held() == MOVED


def test_after_an_outage_both_ends_are_changed(scene) -> None:
    scene.report([SOURCE])
    is_out = True

    def fail(method, subject):
        if is_out:
            raise PlacementUnavailableError(method, "no answer in time")

    scene.model.fail = fail
    count = len(scene.model.requests)
    scene.audit([SOURCE], [DEST], [MOVE])
    wait_until(lambda: scene.reporter.status().error is not None)
    assert scene.reporter._slots.wait_idle(10)
    assert len(scene.model.requests) == count + 1
    is_out = False
    scene.wake(100)
    scene.settle()
    assert scene.held() == MOVED
