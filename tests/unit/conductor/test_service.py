"""How a conductor ends."""

import time
from unittest.mock import Mock

from nodetracker.conductor.service import ConductorService
from nodetracker.model.change import Notification
from nodetracker.rpc.notify import NotificationSender

TOLD = Notification("claim.create", "claim c", {})


class Server:
    """Answers a call, which tells something, until it is stopped."""

    def __init__(self, notifier):
        self.notifier = notifier

    def start(self):
        """See `nodetracker.web.server.Server`."""

    def stop(self, timeout_seconds):
        """See `nodetracker.web.server.Server`."""
        self.notifier.notify(TOLD)
        return True


def make_service(send, graceful_shutdown_timeout):
    notifier = NotificationSender(lambda: send)
    service = ConductorService(
        "c-1", Mock(), Server(notifier), Mock(), Mock(), Mock(), Mock(), notifier, 60,
        graceful_shutdown_timeout,
    )  # fmt: skip
    service.begin()
    return service


def test_what_its_last_calls_told_is_sent_before_it_ends():
    heard = []

    def send(event_type, payload):
        time.sleep(0.2)
        heard.append(event_type)

    assert make_service(send, 10).end()
    assert heard == ["claim.create"]


def test_a_broker_that_is_away_holds_its_end_up_no_longer_than_allowed(caplog):
    def send(event_type, payload):
        raise ConnectionError("refused")

    began = time.monotonic()
    assert make_service(send, 0.3).end()
    assert time.monotonic() - began < 5
    assert "Notifications not sent: 1;" in caplog.text
