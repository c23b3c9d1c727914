import threading
import time

import pytest

from nodetracker.process.workers import HangGuard, WorkerPool, run_within
from tests.threads import no_threads


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


def submit_hanging(pool, gate):
    """Return a task that a thread has taken."""
    call = Hanging(gate)
    task = pool.submit(call)
    call.wait_for_start()
    return task


def test_a_call_returns_its_result():
    task = WorkerPool("t", 2).submit(lambda: 7)
    assert task.wait(30)
    assert task.result() == 7


def test_a_call_raises_its_error():
    def fail():
        raise OSError("boom")

    task = WorkerPool("t", 2).submit(fail)
    assert task.wait(30)
    with pytest.raises(OSError, match="boom"):
        task.result()


def test_many_calls_share_few_threads():
    pool = WorkerPool("t", 3)
    tasks = [pool.submit(threading.current_thread) for _ in range(50)]
    assert all(task.wait(30) for task in tasks)
    assert len({task.result().name for task in tasks}) <= 3
    assert pool.thread_count <= 3


def test_an_abandoned_call_does_not_starve_others(gate):
    pool = WorkerPool("t", 1)
    hung = submit_hanging(pool, gate)
    waiting = pool.submit(lambda: "next")
    assert pool.abandon(hung)
    assert waiting.wait(30)
    assert waiting.result() == "next"
    assert pool.thread_count == 2


def test_a_thread_whose_call_returns_is_counted_once(gate):
    pool = WorkerPool("t", 1)
    hung = submit_hanging(pool, gate)
    pool.abandon(hung)
    assert pool.submit(lambda: 1).wait(30)
    gate.set()
    assert hung.wait_until(time.monotonic() + 30)
    assert pool.submit(lambda: 2).wait(30)
    deadline = time.monotonic() + 30
    while pool.thread_count > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.thread_count == 1


def test_an_abandoned_call_that_did_not_start_is_removed_from_the_queue(gate):
    pool = WorkerPool("t", 1)
    running = submit_hanging(pool, gate)
    queued = pool.submit(lambda: pytest.fail("must not run"))
    assert pool.abandon(queued) is False
    gate.set()
    assert running.wait_until(time.monotonic() + 30)
    assert pool.submit(lambda: 1).wait(30)
    assert not queued.is_done


def test_a_call_takes_no_time_until_it_has_ended(gate):
    pool = WorkerPool("t", 1)
    running, queued = submit_hanging(pool, gate), pool.submit(lambda: 1)
    assert (running.seconds, queued.seconds) == (0.0, 0.0)
    gate.set()
    assert queued.wait_until(time.monotonic() + 30)
    assert running.seconds > 0


def test_threads_are_numbered_and_do_not_keep_the_process(gate):
    pool = WorkerPool("t", 2)
    tasks = [pool.submit(threading.current_thread) for _ in range(2)]
    assert all(task.wait(30) for task in tasks)
    threads = {task.result() for task in tasks}
    assert {thread.name for thread in threads} <= {"t-1", "t-2"}
    assert all(thread.daemon for thread in threads)


def test_a_call_that_has_ended_cannot_be_abandoned():
    pool = WorkerPool("t", 1)
    task = pool.submit(lambda: 1)
    assert task.wait(30)
    assert pool.abandon(task) is False


class TestWithoutAThread:
    """No thread can be started."""

    @pytest.fixture
    def refuse(self, monkeypatch):
        def start(thread):
            raise RuntimeError("can't start new thread")

        def refuse():
            monkeypatch.setattr(threading.Thread, "start", start)

        return refuse

    def test_a_call_without_any_thread_fails_immediately(self, refuse):
        refuse()
        task = WorkerPool("t", 1).submit(lambda: 1)
        assert task.is_done
        assert str(task.error) == "can't start new thread"

    def test_the_pool_recovers_when_threads_can_be_started(self, refuse, monkeypatch):
        pool = WorkerPool("t", 1)
        refuse()
        for _ in range(3):
            pool.submit(lambda: 1)
        assert pool.thread_count == 0
        monkeypatch.undo()
        assert pool.submit(lambda: 2).wait(30)

    def test_a_call_waits_for_existing_threads(self, refuse, gate):
        pool = WorkerPool("t", 2)
        running = submit_hanging(pool, gate)
        refuse()
        waiting = pool.submit(lambda: 2)
        assert not waiting.is_done
        gate.set()
        assert running.wait(30)
        assert waiting.wait(30)

    def test_queued_calls_fail_when_the_last_thread_hangs(self, refuse, gate):
        pool = WorkerPool("t", 1)
        hung = submit_hanging(pool, gate)
        waiting = pool.submit(lambda: 2)
        refuse()
        assert pool.abandon(hung)
        assert str(waiting.error) == "can't start new thread"


class TestHangGuard:
    @staticmethod
    def hang(guard, key, gate):
        call = Hanging(gate)
        task = guard.start(key, call)
        call.wait_for_start()
        assert guard.abandon(key, task)
        return task

    @staticmethod
    def release(gate, *tasks):
        gate.set()
        assert all(task.wait_until(time.monotonic() + 30) for task in tasks)

    def test_a_key_whose_call_hangs_is_blocked_until_it_returns(self, gate):
        guard = HangGuard("t", 2)
        hung = self.hang(guard, "a", gate)
        assert guard.is_blocked("a")
        assert guard.start("a", lambda: pytest.fail("must not run")) is None
        self.release(gate, hung)
        assert not guard.is_blocked("a")
        assert guard.start("a", lambda: 7).wait(30)

    def test_a_hung_call_does_not_affect_other_keys(self, gate):
        guard = HangGuard("t", 1)
        self.hang(guard, "a", gate)
        task = guard.start("b", lambda: 7)
        assert task.wait(30)
        assert task.result() == 7
        assert guard.thread_count == 2

    def test_a_key_is_blocked_at_its_limit_of_hung_calls(self, gate):
        guard = HangGuard("t", 2, max_hung=2)
        hung = [self.hang(guard, "a", gate)]
        assert not guard.is_blocked("a")
        hung.append(self.hang(guard, "a", gate))
        assert guard.is_blocked("a")
        assert guard.hung_keys() == ["a", "a"]
        self.release(gate, *hung)
        assert guard.hung_keys() == []

    def test_a_call_that_is_only_slow_blocks_nothing(self, gate):
        guard = HangGuard("t", 2)
        slow = guard.start("a", gate.wait)
        assert not slow.wait(0.02)
        assert guard.start("a", lambda: 7).wait(30)
        self.release(gate, slow)
        assert not guard.abandon("a", slow)
        assert not guard.is_blocked("a")

    def test_a_call_that_never_started_blocks_nothing(self, gate):
        guard = HangGuard("t", 1)
        call = Hanging(gate)
        running = guard.start("a", call)
        call.wait_for_start()
        queued = guard.start("b", lambda: pytest.fail("must not run"))
        assert not guard.abandon("b", queued)
        assert not guard.is_blocked("b")
        self.release(gate, running)

    def test_each_hung_call_that_returned_is_reported_once(self, gate):
        returned = []
        guard = HangGuard("t", 2, on_return=returned.append)
        hung = [self.hang(guard, key, gate) for key in ("a", "b")]
        assert guard.hung_keys() == ["a", "b"]
        assert returned == []
        self.release(gate, *hung)
        assert not guard.is_blocked("a")
        assert returned == ["a"]
        assert guard.hung_keys() == guard.hung_keys() == []
        assert returned == ["a", "b"]


def test_the_end_of_a_process_without_a_thread_leaves_out_what_needs_one(monkeypatch):
    done = []
    with no_threads(monkeypatch):
        run_within(60, "last", lambda: done.append(1))
    run_within(60, "last", lambda: done.append(2))
    assert done == [2]
