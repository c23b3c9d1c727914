"""Queues of logins: how many passwords are checked at a time, whose is next, and who has to wait."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from nodetracker.api.auth.login_queue import (
    CONCURRENT_CHECKS,
    MAX_REMEMBERED,
    Attempt,
    Backoff,
    LoginQueue,
)
from nodetracker.model.errors import ThrottledError

GUESSER, OTHER = "192.0.2.66", "192.0.2.7"


@dataclass
class Checks:
    """Checks that are as wrong as their password, and that wait until they may go on."""

    begun: list[str] = field(default_factory=list)
    running: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_end: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def attempt(self, name: str, address: str = OTHER, known: bytes | None = None) -> Attempt[bool]:
        def check() -> bool:
            self.begun.append(name)
            self.running.release()
            assert self.may_end.acquire(timeout=60)
            return not name.startswith("wrong")

        return Attempt(name, address, check, known)

    def end_all(self) -> None:
        self.may_end.release(1000)


@pytest.fixture
def checks() -> Iterator[Checks]:
    found = Checks()
    yield found
    found.end_all()


async def start(queue: LoginQueue, *attempts: Attempt[bool]) -> list[asyncio.Task[bool]]:
    """Let attempts begin to wait, one after the other."""
    tasks = []
    for attempt in attempts:
        tasks.append(asyncio.ensure_future(queue.check(attempt)))
        await asyncio.sleep(0)
    return tasks


async def end_one_by_one(checks: Checks, tasks: list[asyncio.Task[bool]], begun: int = 0) -> None:
    """Let each check end when as many as may have begun, so that one begins at a time."""
    for ended in range(len(tasks)):
        while begun < min(ended + CONCURRENT_CHECKS, len(tasks)):
            assert await asyncio.to_thread(checks.running.acquire, timeout=60)
            begun += 1
        checks.may_end.release()
    await asyncio.gather(*tasks)


def test_two_passwords_are_checked_at_a_time_and_addresses_wait_separately(checks):
    async def run() -> None:
        queue = LoginQueue()
        first = await occupy(queue, checks)
        later = await start(
            queue,
            *(checks.attempt(f"guess-{n}", GUESSER) for n in range(4)),
            checks.attempt("other"),
        )
        await end_one_by_one(checks, first + later, begun=len(first))

    asyncio.run(run())
    assert checks.begun.index("other") <= 4  # two that ran, and one or two of the guesses
    assert [name for name in checks.begun if name.startswith("guess")] == sorted(
        name for name in checks.begun if name.startswith("guess")
    )


def test_a_password_that_was_right_before_does_not_wait_behind_guesses(checks):
    async def run() -> None:
        queue = LoginQueue()
        guesses = (checks.attempt(f"guess-{n}", f"{GUESSER}{n}") for n in range(8))
        waiting = await start(queue, *guesses, checks.attempt("known", GUESSER, known=b"k"))
        await end_one_by_one(checks, waiting)

    asyncio.run(run())
    assert checks.begun.index("known") <= 3


async def occupy(queue: LoginQueue, checks: Checks) -> list[asyncio.Task[bool]]:
    """Let as many checks run as may at a time."""
    running = await start(queue, *(checks.attempt(f"a-{n}", "a") for n in range(CONCURRENT_CHECKS)))
    for _ in running:
        assert await asyncio.to_thread(checks.running.acquire, timeout=60)
    return running


def test_whose_turn_does_not_come_in_time_is_refused_and_never_checked(checks):
    async def run() -> None:
        queue = LoginQueue()
        running = await occupy(queue, checks)
        queue._timeout = 0.0
        found = await asyncio.gather(
            *(queue.check(checks.attempt(f"b-{n}")) for n in range(4)), return_exceptions=True
        )
        assert [type(error) for error in found] == [ThrottledError] * 4
        assert found[0].retry_seconds == 1
        checks.end_all()
        assert await asyncio.gather(*running) == [True] * CONCURRENT_CHECKS

    asyncio.run(run())
    assert sorted(checks.begun) == ["a-0", "a-1"]


def test_a_request_that_is_cancelled_gives_up_its_turn(checks):
    async def run() -> None:
        queue = LoginQueue()
        running = await occupy(queue, checks)
        [waiting] = await start(queue, checks.attempt("b"))
        waiting.cancel()
        await asyncio.wait({waiting})
        checks.end_all()
        await asyncio.gather(*running, queue.check(checks.attempt("c")))

    asyncio.run(run())
    assert "b" not in checks.begun


def test_a_check_that_has_begun_is_waited_for(checks):
    """Or in an overload all would be given up shortly after they began."""

    async def run() -> None:
        queue = LoginQueue(timeout=0.05)
        running = await occupy(queue, checks)
        await asyncio.wait(running, timeout=0.2)
        checks.end_all()
        assert await asyncio.gather(*running) == [True] * CONCURRENT_CHECKS

    asyncio.run(run())


class TestThreads:
    """Where every request has a thread from the beginning, as below a foreign WSGI server."""

    def test_few_wait_and_the_others_are_refused_at_once(self, checks):
        queue = LoginQueue()
        addresses = [GUESSER, GUESSER, "192.0.2.1", "192.0.2.2"]
        with ThreadPoolExecutor(len(addresses)) as pool:
            waiting = [
                pool.submit(queue.check_in_thread, checks.attempt("a", address))
                for address in addresses
            ]
            wait_for_threads(queue, len(addresses))
            for address in (GUESSER, OTHER):
                with pytest.raises(ThrottledError, match="too many passwords"):
                    queue.check_in_thread(checks.attempt("b", address))
            checks.end_all()
            assert all(future.result(60) for future in waiting)
        assert queue.check_in_thread(checks.attempt("c", GUESSER))
        assert "b" not in checks.begun

    def test_one_address_does_not_take_them_all(self, checks):
        queue = LoginQueue()
        with ThreadPoolExecutor(3) as pool:
            waiting = [
                pool.submit(queue.check_in_thread, checks.attempt("a", GUESSER)) for _ in range(2)
            ]
            wait_for_threads(queue, 2)
            with pytest.raises(ThrottledError):
                queue.check_in_thread(checks.attempt("b", GUESSER))
            waiting.append(pool.submit(queue.check_in_thread, checks.attempt("other")))
            wait_for_threads(queue, 3)
            checks.end_all()
            assert all(future.result(60) for future in waiting)

    def test_a_password_that_was_right_before_may_always_wait(self, checks):
        queue = LoginQueue()
        with ThreadPoolExecutor(3) as pool:
            for _ in range(2):
                pool.submit(queue.check_in_thread, checks.attempt("a", GUESSER))
            wait_for_threads(queue, 2)
            known = pool.submit(queue.check_in_thread, checks.attempt("known", GUESSER, known=b"k"))
            checks.end_all()
            assert known.result(60)

    def test_whose_turn_does_not_come_in_time_is_refused(self, checks):
        queue = LoginQueue()
        with ThreadPoolExecutor(CONCURRENT_CHECKS) as pool:
            running = [
                pool.submit(queue.check_in_thread, checks.attempt("a", GUESSER))
                for _ in range(CONCURRENT_CHECKS)
            ]
            for _ in running:
                assert checks.running.acquire(timeout=60)
            queue._timeout = 0.0
            with pytest.raises(ThrottledError):
                queue.check_in_thread(checks.attempt("b"))
            checks.end_all()


def wait_for_threads(queue: LoginQueue, count: int) -> None:
    while queue._threads.total() < count:
        threading.Event().wait(0.001)


class TestBackoff:
    @pytest.fixture
    def now(self) -> list[float]:
        return [1000.0]

    @pytest.fixture
    def queue(self, now) -> LoginQueue:
        return LoginQueue(seconds=lambda: now[0])

    @pytest.fixture
    def try_once(self, queue, checks):
        """Try to log in; return the seconds after which another attempt is allowed, None if now."""
        checks.end_all()

        def try_once(name: str = "wrong", address: str = GUESSER, known: bytes | None = None):
            try:
                queue.check_in_thread(checks.attempt(name, address, known))
            except ThrottledError as error:
                return error.retry_seconds
            return None

        return try_once

    def test_after_three_failures_each_further_one_doubles_the_delay_up_to_a_minute(
        self, now, try_once
    ):
        assert [try_once() for _ in range(4)] == [None, None, None, 1]
        delays = []
        for _ in range(9):
            now[0] += try_once() or 0
            assert try_once() is None
            delays.append(try_once())
        assert delays == [2, 4, 8, 16, 32, 60, 60, 60, 60]

    def test_a_refused_attempt_is_not_checked(self, try_once, checks):
        for _ in range(10):
            try_once()
        assert len(checks.begun) == 3

    def test_other_addresses_and_other_users_are_not_delayed(self, try_once):
        for _ in range(4):
            try_once()
        assert try_once(address=OTHER) is None
        assert try_once("wrong-2") is None

    def test_a_password_that_was_right_before_is_not_delayed(self, queue, checks, try_once):
        for _ in range(4):
            try_once("wrong")
        assert try_once("wrong", known=b"k") is None

    def test_a_right_password_ends_it(self, now, queue):
        for is_right in (False, False, True, False, False):
            queue.check_in_thread(Attempt("alice", OTHER, lambda is_right=is_right: is_right))
        queue._backoff.require(Attempt("alice", OTHER, bool))

    def test_failures_are_forgotten_after_ten_minutes(self, now, try_once):
        for _ in range(3):
            try_once()
        now[0] += 602
        assert [try_once() for _ in range(4)] == [None, None, None, 1]

    def test_requests_that_waited_meanwhile_are_delayed_as_well(self, queue):
        async def run() -> list[object]:
            guesses = [queue.check(Attempt("alice", GUESSER, lambda: False)) for _ in range(40)]
            return await asyncio.gather(*guesses, return_exceptions=True)

        found = asyncio.run(run())
        assert 3 <= found.count(False) <= 3 + CONCURRENT_CHECKS

    def test_no_more_failures_are_kept_than_fit_in_memory(self):
        backoff = Backoff(lambda: 0.0)
        for number in range(MAX_REMEMBERED + 10):
            backoff.record(Attempt(f"user-{number}", GUESSER, bool), is_right=False)
        assert len(backoff._failures) == MAX_REMEMBERED
