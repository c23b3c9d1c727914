"""When a batch of readings is written."""

import pytest

from nodetracker.compute.audit_queue import (
    LINGER_SECONDS,
    URGENT_LINGER_SECONDS,
    NodeReading,
    ReadingBatch,
)
from tests.builders import make_snapshot
from tests.unit.compute.manual_timer import ManualTimer


class Batch:
    def __init__(self):
        self.timer = ManualTimer()
        self.batch = ReadingBatch(self.timer)

    def add(self, nodename, is_urgent=False, number=0):
        self.batch.add(NodeReading(make_snapshot(nodename), number, is_urgent=is_urgent))

    def is_due_after(self, seconds, is_reading=True):
        self.timer.advance(seconds)
        return self.batch.is_due(is_reading)


@pytest.fixture
def batch():
    return Batch()


def test_an_empty_batch_is_never_due(batch):
    assert not batch.is_due_after(9, is_reading=False)
    assert batch.batch.due_at == float("inf")


def test_it_is_due_when_no_node_is_being_read(batch):
    batch.add("n1")
    assert not batch.is_due_after(0)
    assert batch.is_due_after(0, is_reading=False)


def test_each_reading_restarts_the_wait(batch):
    for number in range(5):
        batch.add(f"n{number}")
        assert not batch.is_due_after(LINGER_SECONDS * 0.9)
    assert batch.is_due_after(LINGER_SECONDS * 0.11)
    assert len(batch.batch.take()) == 5
    assert not batch.is_due_after(9)


def test_an_urgent_reading_waits_a_moment_at_most(batch):
    batch.add("n1")
    batch.add("n2", is_urgent=True)
    assert not batch.is_due_after(URGENT_LINGER_SECONDS * 0.9)
    batch.add("n3")
    batch.add("n4", is_urgent=True)
    assert batch.is_due_after(URGENT_LINGER_SECONDS * 0.11)


def test_the_newest_reading_of_a_node_is_written(batch):
    batch.add("n1", number=1)
    batch.add("n1", number=2)
    assert [reading.number for reading in batch.batch.take()] == [2]
