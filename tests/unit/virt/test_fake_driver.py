"""Readings of the fake driver: which ones take a thread that may be left behind, and those that do."""

import threading
import time

import pytest
import yaml

from nodetracker.model.fact import ProbeOutcome
from nodetracker.virt.fake.plugin import FakeDriver
from nodetracker.virt.probes import MAX_STUCK_CALLS, ProbeRunner
from tests.threads import count_threads

TIMEOUT = 0.25
NAMES = [f"n{number}" for number in range(6)]


class File:
    """The inventory file of a driver, with six nodes."""

    def __init__(self, path):
        self.path = path
        self.probes = ProbeRunner(TIMEOUT)
        self.driver = FakeDriver(str(path), self.probes)
        self.source = f"fake:{path}"
        self.write()

    def write(self, **fail):
        nodes = [{"nodename": n, "vcpus": 1, "memory_mb": 1, "disk_gb": 1} for n in NAMES]
        self.path.write_text(yaml.safe_dump({"nodes": nodes, "fail": fail}))

    def list(self):
        return self.driver.get_available_nodes().nodenames

    def read(self, *nodenames):
        """Return the error of each node's reading."""
        return {n: self.driver.get_available_resource(n).memory.error for n in nodenames}

    def wait_for_end(self):
        deadline = time.monotonic() + 30
        while self.probes.stuck_count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.probes.stuck_count == 0


@pytest.fixture
def file(tmp_path):
    file = File(tmp_path / "inventory.yaml")
    yield file
    file.path.unlink()
    file.wait_for_end()


def test_nodes_are_read_in_the_thread_that_asks(file, monkeypatch):
    file.write(n1="boom")
    assert list(file.list()) == NAMES
    monkeypatch.setattr(file.probes, "start", None)  # what would take another thread
    assert file.read(*NAMES, "n9") == dict.fromkeys(NAMES) | {
        "n1": "boom",
        "n9": "no such node: n9",
    }
    calls = file.probes.statistics()["inventory"].calls
    assert (calls[ProbeOutcome.SUCCEEDED], calls[ProbeOutcome.FAILED]) == (5, 2)


def test_a_node_that_hangs_is_given_up_in_time_and_the_others_are_read(file):
    file.write(n1="hang")
    file.list()
    started = time.monotonic()
    assert file.read("n0", "n1", "n2") == {
        "n0": None, "n1": f"no answer within {TIMEOUT} s", "n2": None,
    }  # fmt: skip
    assert time.monotonic() - started < 10
    assert file.read("n1") == {"n1": f"no answer within {TIMEOUT} s"}  # at once: it hangs still
    calls = file.probes.statistics()["inventory"].calls
    assert (calls[ProbeOutcome.TIMED_OUT], calls[ProbeOutcome.SKIPPED]) == (1, 1)


def test_nodes_that_hang_fail_all_others_of_their_file_until_it_changes(file):
    hanging = NAMES[:MAX_STUCK_CALLS]
    file.write(**dict.fromkeys(hanging, "hang"))
    file.list()
    file.read(*hanging)
    assert count_threads("probe") >= MAX_STUCK_CALLS
    assert file.read("n4", "n5") == dict.fromkeys(
        ("n4", "n5"), "not queried while other calls of it hang"
    )
    file.write()
    file.wait_for_end()
    file.list()
    assert file.read(*NAMES) == dict.fromkeys(NAMES)


def test_a_node_that_hung_until_the_file_changed_is_read_as_it_was(file):
    file.probes.change_timeout(30)
    file.write(n1="hang")
    file.list()
    found = []
    reading = threading.Thread(target=lambda: found.append(file.read("n1")))
    reading.start()
    file.write(n2="boom")
    reading.join(30)
    assert found == [{"n1": None}]


def test_a_listing_does_not_wait_for_a_node_that_hangs(file):
    file.probes.change_timeout(30)
    file.write(n1="hang")
    file.list()
    reading = threading.Thread(target=file.read, args=("n1",))
    reading.start()
    file.write(n2="boom")
    file.list()
    assert file.read("n2") == {"n2": "boom"}
    reading.join(30)
    assert not reading.is_alive()
