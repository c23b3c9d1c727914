import threading
import time
from functools import partial

import pytest

from nodetracker.model.errors import ExhaustedError
from nodetracker.process.workers import Executor, HungError, run_within
from tests.builders import Clock
from tests.programs import wait_until
from tests.threads import count_threads, no_threads


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


class Hanging:
    """A call that hangs until its gate opens."""

    def __init__(self, gate):
        self._gate = gate
        self._has_started = threading.Event()

    def __call__(self):
        self._has_started.set()
        self._gate.wait()

    def wait_for_start(self):
        assert self._has_started.wait(30)


@pytest.fixture
def clock():
    return Clock()


def start_hanging(executor, gate, source="s", limit=float("inf"), name=None):
    """Return a call that a thread has taken."""
    make = Hanging(gate)
    call = executor.start(source, make, limit, name)
    make.wait_for_start()
    return call


def hang(executor, clock, gate, source="s", name=None):
    """Return a call that was given up at its deadline."""
    call = start_hanging(executor, gate, source, 1.0, name)
    clock.seconds += 1.0
    assert executor.expire(call)
    return call


def release(gate, *calls):
    gate.set()
    assert all(call.done.wait(30) for call in calls)


def run(executor, source, value=7):
    """Return a value that a call of the source returns, None if it is refused."""
    call = executor.start(source, lambda: value, 30)
    return call.result() if call.wait() else None


def refuse():
    pytest.fail("must not run")


def test_a_call_returns_its_result():
    call = Executor("t", 2).start("s", lambda: 7, 30)
    assert call.wait()
    assert (call.result(), call.value, call.error) == (7, 7, None)


def test_a_call_raises_its_error():
    def fail():
        raise OSError("boom")

    call = Executor("t", 2).start("s", fail, 30)
    assert call.wait()
    with pytest.raises(OSError, match="boom"):
        call.result()


def test_many_calls_share_few_threads():
    executor = Executor("t", 3)
    calls = [executor.start("s", threading.current_thread) for _ in range(50)]
    assert all(call.wait() for call in calls)
    assert len({call.value.name for call in calls}) <= 3


def test_threads_are_numbered_and_do_not_keep_the_process():
    executor = Executor("t", 2)
    calls = [executor.start("s", threading.current_thread) for _ in range(2)]
    assert all(call.wait() for call in calls)
    threads = {call.value for call in calls}
    assert {thread.name for thread in threads} <= {"t-1", "t-2"}
    assert all(thread.daemon for thread in threads)


def test_a_call_takes_no_time_until_it_has_ended(gate):
    executor = Executor("t", 1)
    running, queued = start_hanging(executor, gate), executor.start("s", lambda: 1)
    assert (running.seconds, queued.seconds) == (0.0, 0.0)
    gate.set()
    assert queued.wait()
    assert running.seconds > 0


def test_all_that_wait_for_a_call_go_on_when_it_ends(gate):
    executor = Executor("t", 1)
    call = start_hanging(executor, gate)
    waiting = Executor("waiting", 4)
    waits = [waiting.start("s", call.wait) for _ in range(4)]
    assert not call.wait(until=executor.now() + 0.01)
    gate.set()
    assert all(wait.wait() for wait in waits)
    assert [wait.value for wait in waits] == [True] * 4
    assert call.wait()


class TestCallsInTheCallersThread:
    def test_have_ended_when_they_return(self):
        executor = Executor("t", 1)
        call = executor.make_here("s", threading.current_thread)
        assert call.value is threading.current_thread()
        assert (call.is_done, call.is_hung, call.wait()) == (True, False, True)
        assert call.seconds >= 0

    def test_keep_what_they_raise(self):
        call = Executor("t", 1).make_here("s", lambda: 1 // 0)
        assert call.wait()
        with pytest.raises(ZeroDivisionError):
            call.result()

    def test_are_made_while_all_threads_are_busy(self, gate):
        executor = Executor("t", 1)
        start_hanging(executor, gate)
        assert executor.make_here("s", lambda: 7).result() == 7

    def test_are_refused_while_their_source_hangs(self, gate, clock):
        executor = Executor("t", 2, now=clock)
        hung = hang(executor, clock, gate)
        refused = executor.make_here("s", refuse)
        assert (refused.is_refused, refused.repeats) == (True, False)
        assert executor.make_here("other", lambda: 7).result() == 7
        release(gate, hung)
        assert executor.make_here("s", lambda: 7).result() == 7

    def test_are_refused_while_the_same_call_hangs(self, gate, clock):
        executor = Executor("t", 2, max_hung=2, now=clock)
        hung = hang(executor, clock, gate, name="a")
        refused = executor.make_here("s", refuse, name="a")
        assert (refused.is_refused, refused.repeats) == (True, True)
        assert executor.make_here("s", lambda: 7, name="b").result() == 7
        release(gate, hung)


class TestDeadlines:
    def test_a_call_that_is_waited_for_until_its_deadline_is_given_up(self, gate):
        executor = Executor("t", 1)
        call = executor.start("s", gate.wait, 0.25)
        assert not call.wait()
        assert call.is_hung
        assert not call.wait()

    def test_waiting_less_gives_nothing_up(self, gate):
        executor = Executor("t", 1)
        call = start_hanging(executor, gate)
        assert not call.wait(executor.now() + 0.02)
        assert not call.is_hung
        assert executor.hung_count == 0
        gate.set()
        assert call.wait()

    def test_a_deadline_is_counted_from_when_a_thread_takes_the_call(self, clock, gate):
        executor = Executor("t", 1, now=clock)
        running, make = start_hanging(executor, gate), Hanging(threading.Event())
        queued = executor.start("s", make, 1.0)
        clock.seconds = 5.0
        assert not executor.expire(queued)
        release(gate, running)
        make.wait_for_start()
        assert queued.deadline == 6.0

    def test_or_from_its_start(self, clock, gate):
        executor = Executor("t", 1, now=clock, counts_queue=True)
        running, make = start_hanging(executor, gate), Hanging(threading.Event())
        queued = executor.start("s", make, 7.0)
        clock.seconds = 5.0
        release(gate, running)
        make.wait_for_start()
        assert queued.deadline == 7.0

    def test_a_call_that_waits_for_a_thread_for_too_long_never_runs(self, gate):
        executor = Executor("t", 1)
        running = start_hanging(executor, gate)
        queued = executor.start("s", refuse, 0.02)
        assert not queued.wait()
        assert executor.hung_count == 0
        release(gate, running)
        assert run(executor, "s") == 7
        assert not queued.is_done

    def test_a_call_that_has_ended_is_not_given_up(self, clock):
        executor = Executor("t", 1, now=clock)
        call = executor.start("s", lambda: 1, 1.0)
        assert call.done.wait(30)
        clock.seconds = 2.0
        assert not executor.expire(call)
        assert call.result() == 1

    def test_the_outcome_of_a_hung_call_is_dropped(self, clock, gate):
        call = hang(Executor("t", 1, now=clock), clock, gate)
        release(gate, call)
        assert call.is_hung
        with pytest.raises(HungError):
            call.result()


class TestHungCalls:
    def test_a_hung_call_does_not_starve_others(self, clock, gate):
        executor = Executor("starved", 1, now=clock)
        hung = start_hanging(executor, gate, limit=1.0)
        waiting = executor.start("other", lambda: "next")
        clock.seconds = 1.0
        assert executor.expire(hung)
        assert waiting.wait()
        assert waiting.value == "next"
        assert (count_threads("starved"), executor.hung_count) == (2, 1)

    def test_a_thread_whose_call_returns_is_counted_once(self, clock, gate):
        executor = Executor("returned", 1, now=clock)
        hung = hang(executor, clock, gate)
        assert run(executor, "other") == 7
        release(gate, hung)
        calls = [executor.start("s", threading.current_thread) for _ in range(20)]
        assert all(call.wait() for call in calls)
        assert len({call.value for call in calls}) == 1
        assert executor.hung_count == 0

    def test_a_source_that_hangs_gets_no_other_call_until_that_ends(self, clock, gate):
        executor = Executor("t", 2, now=clock)
        hung = hang(executor, clock, gate)
        refused = executor.start("s", refuse)
        assert (refused.is_refused, refused.is_hung, refused.is_done) == (True, True, True)
        assert not refused.wait()
        release(gate, hung)
        assert executor.hung_count == 0
        assert run(executor, "s") == 7

    def test_or_a_few_others_but_not_the_same(self, clock, gate):
        executor = Executor("t", 4, max_hung=2, now=clock)
        hung = [hang(executor, clock, gate, name="a")]
        assert executor.start("s", refuse, name="a").repeats
        hung.append(hang(executor, clock, gate, name="b"))
        other = executor.start("s", refuse, name="c")
        assert other.is_refused
        assert not other.repeats
        release(gate, *hung)
        assert run(executor, "s") == 7

    def test_calls_without_a_name_are_not_the_same(self, clock, gate):
        executor = Executor("t", 4, max_hung=2, now=clock)
        hang(executor, clock, gate)
        assert run(executor, "s") == 7

    def test_refused_calls_start_no_thread(self, clock, gate):
        executor = Executor("refusing", 4, now=clock)
        hang(executor, clock, gate)
        for _ in range(50):
            executor.start("s", refuse)
        assert count_threads("refusing") == 1

    def test_a_call_that_is_only_slow_blocks_nothing(self, gate):
        executor = Executor("t", 2)
        slow = start_hanging(executor, gate)
        assert run(executor, "s") == 7
        release(gate, slow)

    def test_a_source_that_hangs_is_blocked_in_the_executor_beside(self, clock, gate):
        first = Executor("first", 1, now=clock)
        second = Executor("second", 1, now=clock, beside=first)
        hung = hang(second, clock, gate)
        assert first.start("s", refuse).is_refused
        assert run(first, "other") == run(second, "other") == 7
        release(gate, hung)
        assert run(first, "s") == 7

    def test_each_end_is_reported_with_whether_the_call_was_given_up(self, clock, gate):
        ends = []
        executor = Executor(
            "t", 2, now=clock, on_end=lambda call: ends.append((call.source, call.is_hung))
        )
        assert run(executor, "a") == 7
        hung = hang(executor, clock, gate, "b")
        assert ends == [("a", False)]
        release(gate, hung)
        assert ends == [("a", False), ("b", True)]


class TestWithoutAThread:
    """No thread can be started."""

    @pytest.fixture
    def end_threads(self, monkeypatch):
        def start(thread):
            raise RuntimeError("can't start new thread")

        return lambda: monkeypatch.setattr(threading.Thread, "start", start)

    def test_a_call_without_any_thread_fails_immediately(self, end_threads):
        end_threads()
        call = Executor("t", 1).start("s", lambda: 1)
        assert call.is_done
        assert not call.is_hung
        assert isinstance(call.error, ExhaustedError)

    def test_the_executor_recovers_when_threads_can_be_started(self, end_threads, monkeypatch):
        executor = Executor("t", 1)
        end_threads()
        for _ in range(3):
            assert executor.start("s", lambda: 1).is_done
        monkeypatch.undo()
        assert run(executor, "s") == 7

    def test_a_call_waits_for_existing_threads(self, end_threads, gate):
        executor = Executor("t", 2)
        running = start_hanging(executor, gate)
        end_threads()
        waiting = executor.start("s", lambda: 2)
        assert not waiting.is_done
        gate.set()
        assert running.wait()
        assert waiting.wait()

    def test_queued_calls_fail_when_the_last_thread_hangs(self, end_threads, clock, gate):
        executor = Executor("t", 1, now=clock)
        hung = start_hanging(executor, gate, limit=1.0)
        waiting = executor.start("s", lambda: 2)
        end_threads()
        clock.seconds = 1.0
        assert executor.expire(hung)
        assert isinstance(waiting.error, ExhaustedError)

    def test_a_thread_that_was_prepared_makes_the_calls_one_after_the_other(self, end_threads):
        executor = Executor("t", 4)
        executor.prepare()
        executor.prepare()
        end_threads()
        calls = [executor.start("s", partial(pow, number, 2)) for number in range(4)]
        assert [call.wait() and call.result() for call in calls] == [0, 1, 4, 9]

    def test_the_last_thread_is_kept_while_its_executor_is(self, end_threads, monkeypatch):
        monkeypatch.setattr("nodetracker.process.workers.IDLE_SECONDS", 0.01)
        executor = Executor("kept", 4)
        gate = threading.Barrier(4)
        calls = [executor.start("s", gate.wait) for _ in range(4)]
        assert all(call.wait() for call in calls)
        wait_until(lambda: count_threads("kept") == 1)
        end_threads()
        time.sleep(0.1)
        assert run(executor, "s") == 7
        del executor, calls, gate
        wait_until(lambda: count_threads("kept") == 0)

    def test_none_can_be_prepared(self, end_threads):
        end_threads()
        with pytest.raises(ExhaustedError, match="no thread can be started"):
            Executor("t", 1).prepare()


def test_the_end_of_a_process_without_a_thread_leaves_out_what_needs_one(monkeypatch):
    done = []
    with no_threads(monkeypatch):
        run_within(60, "last", lambda: done.append(1))
    run_within(60, "last", lambda: done.append(2))
    assert done == [2]
