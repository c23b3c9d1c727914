"""Check the configuration against the nodes when the agent starts."""

from collections.abc import Sequence

from nodetracker.accounting.audit.inventory import unusable_cpu_sets
from nodetracker.compute.reading import NodeReading
from nodetracker.cpuset import render_cpu_set
from nodetracker.errors import ConfigError
from nodetracker.settings import Policy


def require_online_cpus(readings: Sequence[NodeReading], policy: Policy) -> None:
    """Check that the configured CPU sets leave each node a CPU.

    Raises:
        ConfigError: no CPU of a set is online; the message names option and node.
    """
    for reading in readings:
        cpu = reading.snapshot.cpu.value
        if cpu is None:
            continue
        for option, lacking, none_left in unusable_cpu_sets(cpu.online, policy):
            if none_left:
                raise ConfigError(
                    f"[compute] {option}: none of {render_cpu_set(lacking)} is online "
                    f"on node {reading.nodename}"
                )
