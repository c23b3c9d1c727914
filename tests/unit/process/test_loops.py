import logging
import threading
import time

import pytest
from oslo_service import periodic_task

from nodetracker.model.errors import FencedError, StoppingError
from nodetracker.process.loops import WHEN_DUE, PeriodicLoop, PeriodicTasks, Progress, Wakeup
from nodetracker.process.service import service
from tests.builders import Clock

GROUP = service.Service().tg


def fail_test(error):
    raise AssertionError(error)


def run_loop(tick, interval=0.01, on_fatal=fail_test, fatal=()):
    loop = PeriodicLoop("loop", tick, interval, on_fatal, fatal)
    loop.start(GROUP)
    return loop


class Counter:
    def __init__(self, target, raising=None):
        self.count = 0
        self.reached = threading.Event()
        self._target = target
        self._raising = raising

    def __call__(self):
        self.count += 1
        if self.count == self._target:
            self.reached.set()
        if self._raising is not None:
            raise self._raising


def test_a_loop_ticks_repeatedly():
    tick = Counter(3)
    loop = run_loop(tick)
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)


def test_a_loop_continues_after_a_failure(caplog):
    tick = Counter(3, OSError("boom"))
    loop = run_loop(tick)
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)
    assert "loop failed" in caplog.messages
    assert caplog.records[0].levelno == logging.ERROR


def test_a_fatal_error_ends_the_loop_and_is_reported():
    errors = []
    loop = run_loop(Counter(9, FencedError("taken")), on_fatal=errors.append, fatal=(FencedError,))
    assert loop.join(5)
    assert [str(error) for error in errors] == ["taken"]


def test_without_an_interval_a_loop_ticks_only_on_request():
    tick = Counter(1)
    loop = run_loop(tick, interval=None)
    assert not tick.reached.wait(0.05)
    loop.wake()
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)


def test_a_shared_wakeup_requests_ticks():
    tick, wakeup = Counter(1), Wakeup()
    wakeup.request()  # before the loop exists
    loop = PeriodicLoop("loop", tick, None, fail_test, wakeup=wakeup)
    loop.start(GROUP)
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)


def test_a_stop_waits_for_a_running_tick():
    entered, release, ended = threading.Event(), threading.Event(), threading.Event()

    def tick():
        entered.set()
        release.wait(30)
        ended.set()

    loop = run_loop(tick)
    assert entered.wait(30)
    loop.stop()
    assert not loop.join(0.05)
    release.set()
    assert loop.join(5)
    assert ended.is_set()


def test_a_loop_that_was_not_started_is_joined_immediately():
    loop = PeriodicLoop("loop", fail_test, 1.0, fail_test)
    loop.stop()
    assert loop.join(5)


def test_a_system_exit_does_not_end_a_loop():
    tick = Counter(3, SystemExit(1))
    loop = run_loop(tick)
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)


def test_a_lasting_failure_is_logged_once_and_so_is_its_end(caplog):
    caplog.set_level(logging.INFO)
    outcomes = [OSError("boom"), OSError("boom"), OSError("other"), None, None]
    done = threading.Event()

    def tick():
        outcome = outcomes.pop(0) if outcomes else done.set()
        if outcome is not None:
            raise outcome

    loop = run_loop(tick)
    assert done.wait(30)
    loop.stop()
    assert loop.join(5)
    assert caplog.messages == ["loop failed", "loop failed", "loop work again"]


def test_a_stopping_error_ends_the_loop_without_a_log_line(caplog):
    loop = run_loop(Counter(9, StoppingError("stopped")))
    assert loop.join(5)
    assert caplog.messages == []


def test_another_interval_is_used_immediately():
    tick = Counter(1)
    loop = run_loop(tick, interval=3600)
    loop.change_interval(0.01)
    assert tick.reached.wait(30)
    loop.change_interval(None)
    loop.stop()
    assert loop.join(5)


class TestMoving:
    def test_a_tick_without_progress_is_reported(self):
        clock, inside, leave = Clock(), threading.Event(), threading.Event()

        def tick():
            inside.set()
            leave.wait(30)

        progress = Progress(clock)
        loop = PeriodicLoop("loop", tick, None, fail_test, monotonic=clock, progress=progress)
        loop.start(GROUP)
        assert loop.is_making_progress(10)
        loop.wake()
        assert inside.wait(30)
        clock.seconds = 10
        assert loop.is_making_progress(10)
        clock.seconds = 10.1
        assert not loop.is_making_progress(10)
        progress.note()
        assert loop.is_making_progress(10)
        clock.seconds = 1000
        leave.set()
        loop.stop()
        assert loop.join(5)
        assert loop.is_making_progress(10)

    def test_a_loop_whose_thread_ended_makes_no_progress(self):
        loop = run_loop(Counter(9, FencedError("x")), on_fatal=lambda e: None, fatal=(FencedError,))
        assert loop.join(5)
        assert not loop.is_making_progress(10)

    def test_a_loop_that_was_not_started_counts_as_making_progress(self):
        assert PeriodicLoop("loop", Counter(1), 1, fail_test).is_making_progress(10)


def test_an_interval_above_the_limit_of_a_thread_s_wait_works():
    tick = Counter(2)
    loop = run_loop(tick, interval=1e12)
    loop.wake()
    loop.wake()
    deadline = time.monotonic() + 30
    while tick.count < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    loop.wake()
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)


class WaitingClock(Clock):
    """Time that passes while a loop waits; `requested_at` is when a tick is requested."""

    def __init__(self, requested_at=()):
        super().__init__()
        self._requested_at = list(requested_at)
        self.wakeup = Wakeup()
        self.wakeup.wait = self._wait

    def _wait(self, seconds):
        if self._requested_at and self._requested_at[0] <= self.seconds + seconds:
            self.seconds = self._requested_at.pop(0)
            self.wakeup.request()
        else:
            self.seconds += seconds


def list_ticks(splay, requested_at=()):
    """Return when the first four ticks of a loop start, with an interval of 60."""
    clock, ticks = WaitingClock(requested_at), []

    def tick():
        ticks.append(clock.seconds)
        if len(ticks) == 4:
            raise StoppingError("enough")

    loop = PeriodicLoop(
        "loop", tick, 60, fail_test, splay=lambda: splay, monotonic=clock,
        wakeup=clock.wakeup,
    )  # fmt: skip
    loop.start(GROUP)
    assert loop.join(30)
    return ticks


def test_hosts_that_start_together_tick_at_times_spread_over_a_whole_interval():
    assert list_ticks(0.0) == [30, 90, 150, 210]
    assert list_ticks(0.5) == [60, 120, 180, 240]
    assert list_ticks(1.0) == [90, 150, 210, 270]


def test_a_requested_tick_at_the_start_does_not_end_the_spread():
    assert list_ticks(0.25, requested_at=[1]) == [1, 46, 106, 166]
    assert list_ticks(1.0, requested_at=[91]) == [90, 91, 151, 211]


class CountedTasks(PeriodicTasks):
    def __init__(self, tick):
        super().__init__()
        self._tick = tick

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def count(self, context):
        self._tick()


def test_periodic_tasks_run_whenever_they_are_called():
    first, second = Counter(3), Counter(3)
    tasks = CountedTasks(first), CountedTasks(second)
    for _ in range(3):
        tasks[0].run_tasks()
    tasks[1].run_tasks()
    assert (first.count, second.count) == (3, 1)


@pytest.mark.parametrize("error", [OSError("boom"), SystemExit(1)])
def test_periodic_tasks_that_fail_are_logged_once_by_their_loop_alone(caplog, error):
    tick = Counter(3, error)
    loop = run_loop(CountedTasks(tick).run_tasks)
    assert tick.reached.wait(30)
    loop.stop()
    assert loop.join(5)
    assert caplog.messages == ["loop failed"]
