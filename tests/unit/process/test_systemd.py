"""Test the notifications to systemd by reading them from the socket."""

import os
import socket

import pytest

from nodetracker.process.daemon import SystemdNotifier


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def read(manager):
    return manager.recv(4096).decode()


@pytest.fixture
def notifier(manager):
    return SystemdNotifier({"NOTIFY_SOCKET": manager.getsockname()})


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        (SystemdNotifier.ready, "READY=1"),
        (SystemdNotifier.stopping, "STOPPING=1"),
        (SystemdNotifier.alive, "WATCHDOG=1"),
        (lambda notifier: notifier.extend(1.5), "EXTEND_TIMEOUT_USEC=1500000"),
        (lambda notifier: notifier.status("fine\nagain"), "STATUS=fine again"),
    ],
)
def test_each_notification_has_systemd_s_format(manager, notifier, notify, message):
    notify(notifier)
    assert read(manager) == message


def test_a_reload_carries_the_time(manager, notifier):
    notifier.reloading()
    first, second = read(manager).split("\n")
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")


def test_a_status_is_sent_when_it_changes(manager, notifier):
    for text in ("fine", "fine", "not fine"):
        notifier.status(text)
    assert [read(manager), read(manager)] == ["STATUS=fine", "STATUS=not fine"]


def test_an_abstract_socket_is_reached():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0nodetracker-test-{os.getpid()}")
        receiver.settimeout(5)
        SystemdNotifier({"NOTIFY_SOCKET": f"@nodetracker-test-{os.getpid()}"}).ready()
        assert read(receiver) == "READY=1"


def test_without_systemd_or_its_socket_nothing_happens(tmp_path):
    assert not SystemdNotifier({}).is_enabled
    SystemdNotifier({}).ready()
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_s_interval_is_taken_from_the_environment(more, seconds):
    environment = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin", **more}
    assert SystemdNotifier(environment).watchdog_seconds == seconds
    assert environment == {"PATH": "/bin"}
