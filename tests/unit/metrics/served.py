"""An agent's metrics and health over HTTP."""

import http.client
import socket

from nodetracker.metrics.application import make_application
from nodetracker.views.health import evaluate_health
from nodetracker.web.listeners import RetryingServer
from nodetracker.web.waitress_server import WaitressServer
from tests.functional.servers.process import find_free_port
from tests.programs import wait_until
from tests.unit.metrics.fakes import REPORT, FakeAgentMetrics


class Served(FakeAgentMetrics):
    """Fake agent metrics served on a real address by waitress."""

    def __init__(self, listen="127.0.0.1", port=None, retry_seconds=0.02, **limits):
        super().__init__()
        self.audits.audited(REPORT)
        self.listen = listen
        self.port = port or find_free_port()
        application = make_application(self.metrics.registry, lambda: evaluate_health(self.status))
        name = "Metrics and health"
        self.waitress = WaitressServer(name, application, listen, self.port, **limits)
        self.server = RetryingServer(name, self.waitress, retry_seconds)

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *details):
        self.server.stop()

    def connect(self):
        wait_until(self.is_open)
        return http.client.HTTPConnection(self.listen, self.port, timeout=60)

    def is_open(self):
        try:
            socket.create_connection((self.listen, self.port)).close()
        except OSError:
            return False
        return True

    def request(self, path, method="GET", **headers):
        """Return the response and its body."""
        connection = self.connect()
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body
