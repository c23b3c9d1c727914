"""Bulk statistics: a call that waits for an emulator is passed by the next one."""

import threading

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.connection import MAX_CONNECTIONS, BulkClients, BulkReader
from nodetracker.virt.libvirt.types import DomainStatistics
from tests.probes import SelectiveProbeRunner

WEB = DomainStatistics("uuid", "web")


class Hypervisor:
    """A hypervisor with some emulators that hang; each occupies one call."""

    source = "stub"

    def __init__(self, hung=0):
        self.hung = hung
        self.released = threading.Event()
        self.opened = []
        self.lock = threading.Lock()

    def open(self):
        client = Client(self)
        self.opened.append(client)
        return client


class Client:
    source = "stub"

    def __init__(self, hypervisor):
        self.hypervisor = hypervisor
        self.is_closed = False

    def list_domain_resources(self):
        with self.hypervisor.lock:
            hangs = self.hypervisor.hung > 0
            self.hypervisor.hung -= hangs
        if hangs:
            self.hypervisor.released.wait(30)
        return [WEB]

    def is_alive(self):
        return not self.is_closed

    def close(self):
        self.is_closed = True


@pytest.fixture
def make():
    made = []

    def build(hung=0):
        hypervisor = Hypervisor(hung)
        made.append(hypervisor)
        clients = BulkClients(hypervisor.open(), hypervisor.open)
        hanging = ["stub", *(f"stub, connection {number + 1}" for number in range(1, hung))]
        probes = SelectiveProbeRunner(1.0, hanging[:hung])
        return hypervisor, clients, BulkReader("stub", clients, probes)

    yield build
    for hypervisor in made:
        hypervisor.released.set()


def test_one_connection_suffices_while_no_emulator_hangs(make):
    hypervisor, _, reader = make()
    assert reader.read("n", 1).value == [WEB]
    assert len(hypervisor.opened) == 1


def test_a_reading_with_a_hung_emulator_has_the_others(make):
    hypervisor, _, reader = make(hung=1)
    for _ in range(3):
        assert reader.read("n", 1).value == [WEB]
    assert len(hypervisor.opened) == 2


def test_several_hung_emulators_are_passed_within_a_few_readings(make):
    hypervisor, _, reader = make(hung=3)
    readings = [reader.read("n", 1) for _ in range(2)]
    assert [fact.is_fresh for fact in readings] == [False, True]
    assert len(hypervisor.opened) == 4


def test_the_number_of_hung_calls_is_limited(make):
    hypervisor, _, reader = make(hung=100)
    readings = [reader.read("n", 1) for _ in range(4)]
    assert not any(fact.is_fresh for fact in readings)
    assert len(hypervisor.opened) == MAX_CONNECTIONS


def test_an_error_is_not_tried_again_on_another_connection(make):
    hypervisor, _, reader = make()

    def fail():
        raise HostDataError("stub", "broken")

    hypervisor.opened[0].list_domain_resources = fail
    assert reader.read("n", 1).error == "broken"
    assert len(hypervisor.opened) == 1


def test_no_connection_remains_open_after_the_session(make):
    hypervisor, clients, _ = make()
    clients.get(1)
    assert clients.end() == hypervisor.opened
    with pytest.raises(HostDataError, match="is closed"):
        clients.get(2)
    assert hypervisor.opened[-1].is_closed
