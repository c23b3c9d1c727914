"""Threads beside a block, those of executors, and a process that has no thread left."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest


@contextmanager
def repeating(work: Callable[[], object], seconds: float, threads: int = 1) -> Iterator[None]:
    """Call a function again and again beside a block, and raise its error at the block's end.

    Args:
        seconds: pause before each call.
        threads: in how many threads.
    """
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(seconds):
            work()

    with ThreadPoolExecutor(threads) as pool:
        repeated = [pool.submit(repeat) for _ in range(threads)]
        try:
            yield
        finally:
            is_over.set()
    for each in repeated:
        each.result()


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch, prefix: str = "") -> Iterator[None]:
    """Let no thread be started, as at the limit of a user or a control group.

    Args:
        prefix: of the names of those that cannot be.
    """
    start = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith(prefix):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_some)
        yield


def count_threads(name: str) -> int:
    """Return how many threads an executor of a name has, hung ones included."""
    return sum(thread.name.startswith(f"{name}-") for thread in threading.enumerate())
