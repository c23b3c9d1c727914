"""Check the configuration against the nodes when the agent starts."""

from collections.abc import Iterable, Sequence

from nodetracker.accounting.audit.inventory import unusable_cpu_sets
from nodetracker.accounting.audit.provider_config import check_configs
from nodetracker.accounting.pci.reported import check_reported_specs
from nodetracker.compute.reading import NodeReading
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.errors import ConfigError
from nodetracker.model.node import NodeRecord
from nodetracker.model.settings import Policy


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


def require_consistent(policy: Policy, nodes: Iterable[NodeRecord]) -> None:
    """Check the policy against all nodes of the host.

    Raises:
        ConfigError: two entries of provider.yaml files are for one node, or device
            specs contradict each other on a card that is reported to placement.
    """
    for node in nodes:
        check_configs(policy.providers, [node])
        if policy.pci.report_in_placement:
            check_reported_specs(policy.pci.specs, node.devices.values())
