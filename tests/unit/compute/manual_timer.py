"""Time that only the test advances, for threads that wait by it."""

import threading
import time

from nodetracker.process.clock import Timer


class ManualTimer(Timer):
    def __init__(self):
        self.seconds = 0.0
        self._waiting = []

    def now(self):
        return self.seconds

    def wait(self, condition, seconds):
        self._waiting.append(condition)
        condition.wait()
        self._waiting.remove(condition)

    def advance(self, seconds):
        self.seconds += seconds
        for condition in list(self._waiting):
            with condition:
                condition.notify_all()

    def advance_until(self, is_true, at_most, step=0.05):
        """Advance in steps until something is true; return after how many seconds."""
        started_at = self.seconds
        while not wait_for(is_true, 0.1):  # time for other threads
            if self.seconds - started_at >= at_most:
                assert wait_for(is_true, 30)  # which a busy machine may not have let run
                break
            self.advance(step)
        return self.seconds - started_at


def wait_for(is_true, seconds=30.0):
    """Wait in real time for other threads; return whether it became true."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


class Gate:
    """Blocks threads while it is closed."""

    def __init__(self):
        self._is_open = threading.Event()
        self._is_open.set()
        self.reached = threading.Event()

    def close(self):
        self.reached.clear()
        self._is_open.clear()

    def open(self):
        self._is_open.set()

    def enter(self):
        self.reached.set()
        assert self._is_open.wait(30)
