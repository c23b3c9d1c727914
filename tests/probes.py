"""A runner of probes for tests in which some hang: a busy machine fails none of the others."""

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
