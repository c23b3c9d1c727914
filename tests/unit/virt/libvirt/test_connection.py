"""What a connection logs while its hypervisor does not answer."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodetracker.model.errors import DriverUnavailableError
from nodetracker.virt.libvirt.connection import ConnectionTimes, HypervisorConnection
from nodetracker.virt.libvirt.types import EventHandlers, HypervisorEndpoint, Identity
from tests.unit.compute.manual_timer import wait_for

URI = "qemu:///system"


class FakeClient:
    def __init__(self, hypervisor: "Hypervisor") -> None:
        self._hypervisor = hypervisor

    def set_keepalive(self, interval: int, count: int) -> None:
        pass

    def register_events(self, handlers: EventHandlers) -> None:
        self._hypervisor.handlers.append(handlers)

    def get_identity(self) -> Identity:
        return Identity("kvm-1", "QEMU", 8_000_000)

    def close(self) -> None:
        pass


class Hypervisor:
    """A hypervisor that can hang and refuse."""

    def __init__(self) -> None:
        self.handlers: list[EventHandlers] = []
        self.answers = threading.Event()
        self.answers.set()
        self.error: Exception | None = None
        self.connection = HypervisorConnection(
            HypervisorEndpoint(URI), ConnectionTimes(0.01, 5, 5), lambda event: None, self.open
        )

    def open(self, endpoint: HypervisorEndpoint) -> Any:
        assert self.answers.wait(30)
        if self.error is not None:
            raise self.error
        return FakeClient(self)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        assert wait_for(is_true)

    def break_connection(self, reason: str) -> None:
        self.handlers[-1].on_close(reason)
        self.wait_until(lambda: self.connection.problem is not None)


@pytest.fixture
def hypervisor() -> Iterator[Hypervisor]:
    hypervisor = Hypervisor()
    hypervisor.connection.start()
    hypervisor.wait_until(lambda: hypervisor.connection.problem is None)
    yield hypervisor
    hypervisor.error = None
    hypervisor.answers.set()
    hypervisor.connection.close()


def test_a_frozen_hypervisor_is_one_line_until_its_failure_changes(
    hypervisor: Hypervisor, caplog: pytest.LogCaptureFixture
) -> None:
    connection = hypervisor.connection
    hypervisor.answers.clear()
    hypervisor.break_connection("no answer to keepalive messages")
    hypervisor.wait_until(lambda: connection.problem == f"{URI}: no answer within 0.01 s")
    assert caplog.messages == [f"{URI}: no answer to keepalive messages"]
    hypervisor.error = DriverUnavailableError(URI, "refused")
    hypervisor.answers.set()
    hypervisor.wait_until(lambda: connection.problem == f"{URI}: refused")
    assert caplog.messages[1:] == [f"{URI}: refused"]


def test_a_hypervisor_that_hangs_from_the_start_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hypervisor = Hypervisor()
    hypervisor.answers.clear()
    hypervisor.connection.start()
    text = f"{URI}: no answer within 0.01 s"
    hypervisor.wait_until(lambda: hypervisor.connection.problem == text)
    hypervisor.answers.set()
    hypervisor.wait_until(lambda: hypervisor.connection.problem is None)
    hypervisor.connection.close()
    assert caplog.messages == [text]
