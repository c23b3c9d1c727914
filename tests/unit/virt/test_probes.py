import logging
import threading
import time

import pytest

from nodetracker.bootstrap.agent import build_probes
from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.model.fact import ProbeOutcome, failed, fresh
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.virt.probes import MAX_STUCK_CALLS, ProbeKey, ProbeRunner
from tests.threads import count_threads

KEY = ProbeKey("/proc/meminfo", "node-1", "memory")
HANGS_AFTER = 0.25
"""Seconds; long enough for a thread to start on a busy machine."""

TIMEOUT = f"no answer within {HANGS_AFTER} s"


@pytest.fixture
def runner():
    return ProbeRunner(30)


@pytest.fixture
def impatient():
    """A runner for probes that hang."""
    return ProbeRunner(HANGS_AFTER)


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def wait_until_nothing_hangs(runner):
    deadline = time.monotonic() + 30
    while runner.stuck_count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert runner.stuck_count == 0


def raising(error):
    def read():
        raise error

    return read


def test_a_probe_that_succeeds_is_a_fresh_fact(runner):
    assert runner.run(KEY, lambda: 5) == fresh("/proc/meminfo", 5)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (HostDataError("/proc/meminfo", "has no MemTotal"), "has no MemTotal"),
        (HostDataError("/sys/x", "is empty"), "/sys/x: is empty"),
        (DriverUnavailableError("/proc/meminfo", "is not ready"), "is not ready"),
        (KeyError("oops"), "KeyError: 'oops'"),
    ],
    ids=["of its own source", "of another source", "not ready", "a fault in the probe"],
)
def test_a_probe_that_raises_is_a_failed_fact(runner, error, text):
    assert runner.run(KEY, raising(error)) == failed("/proc/meminfo", text)


def test_a_pending_probe_is_done_once_its_fact_returns_immediately(impatient, gate):
    hung = impatient.start(KEY, gate.wait)
    assert not hung.call.is_done
    assert hung.fact() == failed("/proc/meminfo", TIMEOUT)
    refused = impatient.start(KEY, lambda: 5)
    assert refused.call.is_done
    assert refused.fact() == failed("/proc/meminfo", TIMEOUT)
    gate.set()
    wait_until_nothing_hangs(impatient)
    assert hung.call.is_done


def test_probes_run_concurrently():
    runner = ProbeRunner(30)
    barrier = threading.Barrier(3)
    pending = [
        runner.start(ProbeKey("s", "n", name), lambda: barrier.wait(30)) for name in ("a", "b", "c")
    ]
    assert all(item.fact().is_fresh for item in pending)


def test_a_hung_probe_is_not_run_again_until_it_returns(impatient, gate):
    entered = []

    def hang():
        entered.append(1)
        gate.wait()
        return 1

    assert impatient.run(KEY, hang) == failed(KEY.source, TIMEOUT)
    assert impatient.run(KEY, hang) == failed(KEY.source, TIMEOUT)
    assert len(entered) == 1
    gate.set()
    wait_until_nothing_hangs(impatient)
    assert impatient.run(KEY, hang) == fresh(KEY.source, 1)


def test_a_few_hung_calls_block_their_source_and_no_other(impatient, gate):
    for number in range(MAX_STUCK_CALLS):
        impatient.run(ProbeKey("uri", f"node-{number}", "cpu"), gate.wait)
    refused = impatient.run(ProbeKey("uri", "node-99", "cpu"), lambda: 1)
    assert refused == failed("uri", "not queried while other calls of it hang")
    assert impatient.run(ProbeKey("other", "node-99", "cpu"), lambda: 1).is_fresh
    gate.set()
    wait_until_nothing_hangs(impatient)
    assert impatient.run(ProbeKey("uri", "node-99", "cpu"), lambda: 1).is_fresh


def test_querying_a_hung_source_again_leaks_no_thread(impatient, gate):
    for number in range(MAX_STUCK_CALLS):
        impatient.run(ProbeKey("uri", f"node-{number}", "cpu"), gate.wait)
    before = count_threads("probe")
    for _ in range(5):
        for number in range(50):
            impatient.run(ProbeKey("uri", f"node-{number}", "cpu"), gate.wait)
    assert count_threads("probe") <= before


def test_a_state_is_logged_once_when_it_changes(runner, caplog):
    caplog.set_level(logging.INFO)
    broken = raising(HostDataError(KEY.source, "is empty"))
    for _ in range(3):
        runner.run(KEY, broken)
    for _ in range(3):
        runner.run(KEY, lambda: 1)
    assert caplog.messages == [
        "Probe memory of node-1 failed: /proc/meminfo: is empty",
        "Probe memory of node-1 (/proc/meminfo) answers again",
    ]


def test_a_blocked_source_is_a_few_log_lines_for_a_thousand_nodes(impatient, gate, caplog):
    for number in range(1000):
        impatient.run(ProbeKey("uri", f"node-{number}", "cpu"), gate.wait)
    assert len(caplog.messages) == MAX_STUCK_CALLS  # one for each probe that hangs
    caplog.clear()
    caplog.set_level(logging.INFO)
    gate.set()
    wait_until_nothing_hangs(impatient)
    for number in range(1000):
        impatient.run(ProbeKey("uri", f"node-{number}", "cpu"), lambda: 1)
    assert len(caplog.messages) == 2 * MAX_STUCK_CALLS  # returned, and answers again


def test_calls_are_timed_and_counted_by_outcome(impatient, gate):
    impatient.run(KEY, lambda: time.sleep(0.01))
    impatient.run(KEY, raising(HostDataError("s", "r")))
    impatient.run(KEY, gate.wait)
    impatient.run(KEY, gate.wait)
    counted = impatient.statistics()["memory"]
    assert counted.calls == {
        ProbeOutcome.SUCCEEDED: 1,
        ProbeOutcome.FAILED: 1,
        ProbeOutcome.TIMED_OUT: 1,
        ProbeOutcome.SKIPPED: 1,
    }
    assert counted.seconds >= 0.06


class TestProbesInTheCallersThread:
    """They take no other thread and are otherwise as all others are."""

    def test_are_facts(self, runner):
        thread = threading.current_thread()
        assert runner.run_here(KEY, threading.current_thread) == fresh(KEY.source, thread)
        error = HostDataError(KEY.source, "is empty")
        assert runner.run_here(KEY, raising(error)) == failed(KEY.source, "is empty")
        assert runner.run_here(KEY, raising(KeyError("oops"))) == runner.run(
            KEY, raising(KeyError("oops"))
        )

    def test_are_counted_and_logged_once_when_they_change(self, runner, caplog):
        caplog.set_level(logging.INFO)
        broken = raising(HostDataError(KEY.source, "is empty"))
        for _ in range(2):
            runner.run_here(KEY, broken)
        runner.run_here(KEY, lambda: 1)
        assert caplog.messages == [
            "Probe memory of node-1 failed: /proc/meminfo: is empty",
            "Probe memory of node-1 (/proc/meminfo) answers again",
        ]
        calls = runner.statistics()["memory"].calls
        assert (calls[ProbeOutcome.FAILED], calls[ProbeOutcome.SUCCEEDED]) == (2, 1)

    def test_are_refused_while_the_same_one_or_its_source_hangs(self, impatient, gate, caplog):
        impatient.run(KEY, gate.wait)
        assert impatient.run_here(KEY, lambda: 1) == failed(KEY.source, TIMEOUT)
        other = ProbeKey(KEY.source, "node-2", "memory")
        assert impatient.run_here(other, lambda: 1).is_fresh
        for number in range(1, MAX_STUCK_CALLS):
            impatient.run(ProbeKey(KEY.source, f"hung-{number}", "memory"), gate.wait)
        refused = impatient.run_here(other, lambda: 1)
        assert refused == failed(KEY.source, "not queried while other calls of it hang")
        assert impatient.statistics()["memory"].calls[ProbeOutcome.SKIPPED] == 2
        gate.set()
        wait_until_nothing_hangs(impatient)
        caplog.clear()
        caplog.set_level(logging.INFO)
        assert impatient.run_here(KEY, lambda: 1) == fresh(KEY.source, 1)
        assert f"A hung call of probe {KEY} ({KEY.source}) has returned" in caplog.messages


@pytest.mark.parametrize("max_concurrent", [1, 8])
def test_frozen_nodes_leave_threads_to_the_probes_of_another(gate, max_concurrent):
    settings = AgentSettings(
        host="host-1",
        state_path="",
        policy=Policy(),
        max_concurrent_audits=max_concurrent,
        probe_timeout=20,
    )
    runner = build_probes(settings)
    for node in range(max(1, max_concurrent - 1)):
        for number in range(8):  # as many as a driver has
            runner.start(ProbeKey(f"frozen {node}", f"n{node}", str(number)), gate.wait)
    assert runner.run(KEY, lambda: 1) == fresh(KEY.source, 1)
