"""A child finds out which losses are survived when that is due, of one process alone."""

from datetime import timedelta

import pytest

from nodetracker.model.service import API_BINARY, CONDUCTOR_BINARY
from nodetracker.model.tolerance import HostTolerance, Verdict
from nodetracker.usecases.watch import ToleranceWatch, Watcher
from tests.builders import NOW, make_service


class Answers:
    """A store with an answer that a child checks, and its clock."""

    def __init__(self):
        self.seconds, self.checked, self.runs = 0.0, [], 0

    def now(self):
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds

    def list_outage_services(self, service_down_time):
        return [
            make_service(host="a", binary=API_BINARY),
            make_service(host="b", binary=CONDUCTOR_BINARY),
        ]

    def list_tolerances(self):
        return [HostTolerance("h", Verdict.SURVIVED, "", checked_at=at) for at in self.checked]

    def compute(self):
        self.runs += 1

    def watch(self, interval=600, watcher=None):
        return ToleranceWatch(self, interval, self.compute, watcher, self.monotonic)


@pytest.fixture
def store():
    return Answers()


def test_it_is_found_out_once_an_interval(store):
    watch = store.watch()
    for seconds in (0, 60, 599, 600, 660):
        store.seconds = seconds
        watch.watch_tolerance()
    assert store.runs == 2


def test_another_process_may_have_done_it(store):
    store.seconds, store.checked = 900, [NOW + timedelta(seconds=400), NOW]
    store.watch().watch_tolerance()
    assert store.runs == 1
    store.checked = [NOW + timedelta(seconds=400)]
    store.watch().watch_tolerance()
    assert store.runs == 1


def test_it_is_not_due_again_at_once_after_a_failure_without_answers(store):
    watch = store.watch()
    store.compute = lambda: 1 / 0
    watch = store.watch()
    with pytest.raises(ZeroDivisionError):
        watch.watch_tolerance()
    store.seconds = 60
    watch.watch_tolerance()


def test_an_interval_of_zero_is_never_and_removes_what_is_stored(store):
    store.watch(0).watch_tolerance()
    assert store.runs == 0
    store.checked = [NOW]
    store.watch(0).watch_tolerance()
    assert store.runs == 1


def test_only_the_first_of_the_services_that_are_up_does_it(store):
    store.watch(watcher=Watcher("b", CONDUCTOR_BINARY, 60)).watch_tolerance()
    assert store.runs == 0
    store.watch(watcher=Watcher("a", API_BINARY, 60)).watch_tolerance()
    assert store.runs == 1


@pytest.mark.parametrize(("interval", "seconds"), [(3600, 60), (600, 60), (20, 2), (0, 60)])
def test_it_looks_often_enough_to_renew_and_to_take_over(store, interval, seconds):
    assert store.watch(interval).spacing == seconds
