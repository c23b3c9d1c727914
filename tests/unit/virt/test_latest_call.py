import queue
import threading
from math import inf

import pytest

from nodetracker.model.errors import ExhaustedError
from nodetracker.virt.composite import LatestCall
from tests.threads import no_threads
from tests.unit.compute.manual_timer import wait_for


class Source:
    """Something whose calls return numbers, each after the gate has been opened."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.number = 0
        self.late = queue.Queue()
        self.calls = LatestCall("test", self.answer, lambda: self.late.put(self.number))

    def answer(self):
        self.number += 1
        number = self.number
        self.gate.wait()
        if number < 0:
            raise ValueError("negative")
        return number

    def ask(self, wait=0.01, budget=30.0):
        self.calls.start(budget)
        latest, is_pending = self.calls.latest(wait)
        return latest.value, is_pending


@pytest.fixture
def source():
    made = Source()
    yield made
    made.gate.set()


def test_a_call_that_ends_in_time_is_the_outcome(source):
    assert source.ask(inf) == (1, False)
    assert source.ask(inf) == (2, False)
    assert source.late.empty()


def test_the_first_outcome_is_waited_for(source):
    source.gate.clear()
    threading.Timer(0.1, source.gate.set).start()
    assert source.ask(wait=0.001) == (1, False)


def test_a_late_call_leaves_the_outcome_before_it_until_it_ends(source):
    source.ask(inf)
    source.gate.clear()
    assert source.ask() == (1, True)
    assert source.ask() == (1, True)
    assert wait_for(lambda: source.number == 2)
    assert source.calls.is_busy
    source.gate.set()
    assert source.late.get(timeout=30) == 2
    assert source.calls.is_busy  # until somebody has used it
    latest, is_pending = source.calls.latest(inf)
    assert (latest.value, is_pending) == (2, False)
    assert not source.calls.is_busy
    assert source.late.empty()


def test_an_error_is_the_outcome(source):
    source.number = -5
    source.calls.start(30.0)
    assert isinstance(source.calls.latest(inf)[0].error, ValueError)


def test_a_call_beyond_its_budget_fails_and_is_not_made_again_while_it_hangs(source):
    source.gate.clear()
    source.calls.start(0.05)
    assert source.calls.latest(inf)[0].is_hung
    for _ in range(3):
        source.calls.start(30.0)
        latest, is_pending = source.calls.latest(inf)
        assert (latest.is_hung, is_pending) == (True, False)
    assert wait_for(lambda: source.number == 1)
    source.gate.set()
    while source.ask(inf) == (None, False):
        pass
    assert source.number == 2
    assert source.late.empty()


def test_a_call_without_a_thread_fails(source, monkeypatch):
    with no_threads(monkeypatch):
        source.calls.start(30.0)
    assert isinstance(source.calls.latest(inf)[0].error, ExhaustedError)
