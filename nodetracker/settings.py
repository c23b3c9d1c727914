"""What the parts are built with: frozen values, made once from the configuration.

No part reads the configuration itself; `nodetracker.bootstrap` builds these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.pci_request import Alias
from nodetracker.model.pci_spec import DeviceSpec

DEFAULT_AUDIT_INTERVAL = 60
"""Seconds between audits when the operator names none."""


@dataclass(frozen=True, slots=True)
class ReservedPages:
    """Pages of one cell and size that belong to the host and never to a guest."""

    cell: int
    size_kb: int
    count: int


@dataclass(frozen=True, slots=True)
class AllocationRatios:
    """How far each resource may be promised beyond what is there; None = not configured."""

    cpu: float | None = None
    ram: float | None = None
    disk: float | None = None


@dataclass(frozen=True, slots=True)
class PciPolicy:
    """Which PCI devices guests may have, and by which names claims ask for them.

    Attributes:
        specs: the first that names a device wins; without one no device is managed.
        aliases: by name.
        report_in_placement: whether placement gets a provider for each device.
    """

    specs: tuple[DeviceSpec, ...] = ()
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    report_in_placement: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator decides about a node, beside what the node is.

    Attributes:
        reserved_cpus, reserved_memory_mb, reserved_disk_mb: kept for the host.
        configured_ratios: win over what the row has.
        initial_ratios: for a row that has none; all three are set.
        cpu_shared_set, cpu_dedicated_set: None = not configured.
        numa_networks: network -> ids of the NUMA cells that its interfaces are at.
        held_fact_expiry: seconds after which a held fact is unknown.
        host_ip: the address that rows show.
    """

    reserved_cpus: int = 0
    reserved_memory_mb: int = 512
    reserved_disk_mb: int = 0
    reserved_pages: tuple[ReservedPages, ...] = ()
    configured_ratios: AllocationRatios = AllocationRatios()
    initial_ratios: AllocationRatios = AllocationRatios(4.0, 1.0, 1.0)
    cpu_shared_set: CpuSet | None = None
    cpu_dedicated_set: CpuSet | None = None
    held_fact_expiry: int = 600
    host_ip: str = "127.0.0.1"
    pci: PciPolicy = PciPolicy()
    numa_networks: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Settings of ledger transactions; the same on every host, so that all decide alike.

    Attributes:
        service_down_time: seconds of silence after which a service is down.
        claim_timeout: seconds after which a held claim may expire.
        is_packing: NUMA cells are filled one after the other instead of evenly.
        aliases: names by which claims request PCI devices.
    """

    service_down_time: int
    claim_timeout: int
    is_packing: bool = False
    aliases: Mapping[str, Alias] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent's core runs by.

    Attributes:
        host: the name that this agent answers for.
        state_path: directory of the agent's own files.
        audit_interval: seconds between audits; None = only on demand.
        probe_timeout: seconds after which a probe counts as hung.
        max_concurrent_audits: nodes that are read side by side.
        report_interval: seconds between heartbeats.
        service_down_time: seconds of silence after which a service is down.
        graceful_shutdown_timeout: seconds a running audit gets to end.
        claim_timeout: seconds after which a held claim may expire.
        is_packing_cells: NUMA cells are filled one after the other instead of evenly.
    """

    host: str
    state_path: str
    policy: Policy
    audit_interval: float | None = DEFAULT_AUDIT_INTERVAL
    probe_timeout: float = 20.0
    max_concurrent_audits: int = 8
    report_interval: int = 10
    service_down_time: int = 60
    graceful_shutdown_timeout: int = 60
    claim_timeout: int = 600
    is_packing_cells: bool = False
