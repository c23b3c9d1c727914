"""Threads of executors, and a process that has no thread left."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no thread be started, as at the limit of a user or a control group."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield


def count_threads(name: str) -> int:
    """Return how many threads an executor of a name has, hung ones included."""
    return sum(thread.name.startswith(f"{name}-") for thread in threading.enumerate())
