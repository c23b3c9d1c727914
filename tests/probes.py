"""A runner of probes for tests in which some hang: a busy machine fails none of the others."""

from types import SimpleNamespace

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.model.fact import failed, fresh
from nodetracker.virt.probes import ProbeRunner

_WAIT_SECONDS = 60.0


class SelectiveProbeRunner(ProbeRunner):
    """Abandons probes that are known to hang after the timeout, and waits for all others.

    Attributes:
        hanging: names of the nodes, and of the sources, whose probes hang.
    """

    def __init__(self, timeout_seconds, hanging=()):
        super().__init__(timeout_seconds)
        self.hanging = set(hanging)

    def start(self, key, read, timeout_seconds=None):
        hangs = not self.hanging.isdisjoint((key.nodename, key.source))
        return super().start(key, read, timeout_seconds if hangs else _WAIT_SECONDS)


class InlineProbeRunner(ProbeRunner):
    """Runs each probe in the thread that starts it; only errors that drivers expect fail a fact."""

    def start(self, key, read, timeout_seconds=None):
        try:
            fact = fresh(key.source, read())
        except (HostDataError, DriverUnavailableError) as error:
            fact = failed(key.source, str(error))
        return SimpleNamespace(fact=lambda: fact, call=SimpleNamespace(is_done=True, is_hung=False))

    def run_here(self, key, read):
        return self.run(key, read)
