"""Notifications are sent in order, wait while nobody takes them, and give way to newer ones."""

import threading
import time

import pytest

from nodetracker.model.change import Notification
from nodetracker.rpc.notify import NotificationQueue, NotificationSender
from tests.programs import wait_until
from tests.threads import no_threads


def event(subject, number=0, event_type="claim.create"):
    return Notification(event_type, subject, {"number": number})


class Listener:
    """Takes what is sent, unless it is away."""

    def __init__(self):
        self.heard = []
        self.is_away = False

    def __call__(self, event_type, payload):
        if self.is_away:
            raise ConnectionError("refused")
        self.heard.append((event_type, payload))

    @property
    def numbers(self):
        return [payload["number"] for _, payload in self.heard]


@pytest.fixture
def listener():
    return Listener()


def make_sender(listener, length=1000):
    return NotificationSender(lambda: listener, NotificationQueue(length), retry_seconds=0.01)


def test_all_is_sent_in_order_with_the_payloads_version(listener):
    sender = make_sender(listener)
    for number in range(50):
        sender.notify(event(f"c{number % 3}", number))
    assert sender.flush(5)
    assert listener.numbers == list(range(50))
    assert listener.heard[0] == ("claim.create", {"version": "1.0", "number": 0})


def test_what_the_broker_does_not_take_waits_for_it(listener, caplog):
    caplog.set_level("INFO")
    listener.is_away = True
    sender = make_sender(listener)
    for number in range(5):
        sender.notify(event("c", number))
    wait_until(lambda: "Notifications wait: ConnectionError: refused" in caplog.text)
    assert (listener.heard, sender.waiting) == ([], 5)
    listener.is_away = False
    assert sender.flush(5)
    assert listener.numbers == [0, 1, 2, 3, 4]
    assert caplog.text.count("Notifications wait") == 1
    wait_until(lambda: "Notifications are sent again" in caplog.text)


def test_a_process_without_a_thread_sends_once_it_has_one(listener, monkeypatch):
    sender = make_sender(listener)
    with no_threads(monkeypatch):
        sender.notify(event("c", 1))
    assert sender.error is not None
    assert sender.error.startswith("no thread can be started")
    sender.notify(event("c", 2))
    assert sender.flush(5)
    assert listener.numbers == [1, 2]
    wait_until(lambda: sender.error is None)


def test_a_full_queue_drops_what_is_superseded_and_keeps_each_newest_state():
    queue = NotificationQueue(4)
    for number in range(10):
        queue.put(event("busy", number))
    for subject in ("a", "b"):
        queue.put(event(subject))
    kept = []
    while len(queue):
        kept.append(queue.first(0))
        queue.take(kept[-1])
    assert [item.subject for item in kept][-2:] == ["a", "b"]
    assert kept[-3].payload == {"number": 9}
    assert queue.dropped == 12 - len(kept)


def test_a_full_queue_loses_nothing_that_updates_of_one_thing_told():
    queue = NotificationQueue(2)
    created = {"uuid": "u", "vcpus": 8, "memory_mb_used": 0}
    queue.put(Notification("compute_node.create", "compute_node u", created))
    for old, new in (({"vcpus": 8}, {"vcpus": 16}), ({"memory_mb_used": 0}, {"memory_mb_used": 9})):
        body = {"uuid": "u", "old": old, "new": new}
        queue.put(Notification("compute_node.update", "compute_node u", body))
    told = queue.first(0)
    assert told.event_type == "compute_node.create"
    assert told.payload == {"uuid": "u", "vcpus": 16, "memory_mb_used": 9}
    assert (len(queue), queue.dropped) == (1, 2)


def test_of_more_things_than_fit_the_oldest_are_dropped_and_counted():
    queue = NotificationQueue(3)
    for number in range(5):
        queue.put(event(f"c{number}", number))
    assert queue.first(0).payload == {"number": 2}
    assert (len(queue), queue.dropped) == (3, 2)


def test_what_was_dropped_is_said_when_all_else_is_sent(listener, caplog):
    listener.is_away = True
    sender = make_sender(listener, 3)
    for number in range(8):
        sender.notify(event("c", number))
    assert sender.dropped == 8 - sender.waiting > 0
    listener.is_away = False
    assert sender.flush(5)
    assert listener.numbers[-1] == 7
    wait_until(
        lambda: f"Notifications dropped while the broker was away: {sender.dropped}," in caplog.text
    )


def test_one_that_is_dropped_while_it_is_sent_is_not_taken_twice():
    queue = NotificationQueue(1)
    queue.put(event("a", 1))
    sent = queue.first(0)
    queue.put(event("a", 2))
    queue.take(sent)
    assert queue.first(0).payload == {"number": 2}


def test_what_cannot_be_sent_at_the_end_is_said(listener, caplog):
    listener.is_away = True
    sender = make_sender(listener)
    sender.notify(event("c"))
    assert not sender.flush(0.1)
    assert "Notifications not sent: 1;" in caplog.text


def test_a_broker_that_is_slow_gets_all_at_the_end(listener):
    def send(event_type, payload):
        time.sleep(0.01)
        listener(event_type, payload)

    sender = NotificationSender(lambda: send)
    for number in range(100):
        sender.notify(event(f"c{number}", number))
    assert sender.flush(0.5)
    assert listener.numbers == list(range(100))


def test_notifying_never_waits(listener):
    gate = threading.Event()

    def send(event_type, payload):
        gate.wait(30)

    sender = NotificationSender(lambda: send)
    for number in range(5000):
        sender.notify(event("c", number))
    assert sender.waiting <= 1001
    gate.set()


def test_where_none_are_wanted_none_wait_and_none_are_dropped():
    gate = threading.Event()

    def make_send():
        gate.wait(30)

    sender = NotificationSender(make_send, NotificationQueue(2))
    for number in range(5):
        sender.notify(event(f"c{number}"))
    assert (sender.waiting, sender.dropped) == (2, 3)
    gate.set()
    assert sender.flush(5)
    sender.notify(event("c"))
    assert (sender.waiting, sender.dropped) == (0, 0)
