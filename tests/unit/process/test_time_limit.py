"""A request's time for the database."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodetracker.process import time_limit
from nodetracker.process.time_limit import TimeLimit, find_limit, limit_database
from tests.builders import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(time_limit.time, "monotonic", clock)
    return clock


def test_only_the_time_of_calls_counts(clock: Clock) -> None:
    limit = TimeLimit(10)
    for _ in range(2):
        clock.seconds += 60.0
        with limit.counting():
            clock.seconds += 3.0
    assert limit.seconds_left == 4.0
    with limit.counting():
        clock.seconds += 4.0
        assert limit.is_over


def test_timeouts_end_with_the_limit_and_are_never_0(clock: Clock) -> None:
    limit = TimeLimit(10)
    assert (limit.cut(5), limit.cut(30)) == (5, 10)
    with limit.counting():
        clock.seconds += 7.33
        assert (limit.cut(2), limit.cut(5)) == (2, 2.7)
        clock.seconds += 60.0
        assert limit.cut(5) == 0.1


@pytest.mark.parametrize(
    ("seconds", "to_retry"), [(15, 13), (120, 118), (4, 2), (1, 0.5), (math.inf, 7)]
)
def test_some_time_is_kept_for_what_follows_repetitions(
    clock: Clock, seconds: float, to_retry: float
) -> None:
    assert TimeLimit(seconds).seconds_to_retry(7) == to_retry


def test_it_belongs_to_the_thread_of_the_request() -> None:
    assert math.isinf(find_limit().seconds)
    with limit_database(5) as limit, ThreadPoolExecutor(1) as pool:
        assert find_limit() is limit
        assert math.isinf(pool.submit(find_limit).result().seconds)
    assert math.isinf(find_limit().seconds)
