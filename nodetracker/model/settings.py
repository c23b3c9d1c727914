"""Settings as frozen values, built once from the configuration by `nodetracker.bootstrap`.

Other packages take these values and do not read the configuration themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodetracker.model.candidate import CandidateOrder
from nodetracker.model.cpuset import CpuSet
from nodetracker.model.numa import ReservedPages
from nodetracker.model.pci import Alias, DeviceSpec
from nodetracker.model.provider import ProviderConfig
from nodetracker.model.start import AdmissionMode

DEFAULT_AUDIT_INTERVAL = 60
"""Seconds between audits unless configured."""


NEVER_HELD: Final = -1
"""As `Policy.held_fact_expiry`: a fact that fails is unknown immediately."""


@dataclass(frozen=True, slots=True)
class AllocationRatios:
    """Overcommit ratio of each resource; None = not configured."""

    cpu: float | None = None
    ram: float | None = None
    disk: float | None = None


@dataclass(frozen=True, slots=True)
class Quotas:
    """What conductors store of one host at most; 0 = any number.

    More that is stored already is kept, and may become less.

    Attributes:
        max_warnings_per_host: unresolved ones.
        hold_jumps: whether a node whose capacity jumped gets no claims until it is accepted.
    """

    max_nodes_per_host: int = 1000
    max_guests_per_node: int = 10_000
    max_warnings_per_host: int = 1000
    hold_jumps: bool = False


@dataclass(frozen=True, slots=True)
class PciPolicy:
    """PCI devices available to guests, and the aliases by which claims request them.

    Attributes:
        specs: the first that matches a device wins; a device that matches none is not managed.
        aliases: name -> alias.
        report_in_placement: whether placement gets a provider for each device.
    """

    specs: tuple[DeviceSpec, ...] = ()
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    report_in_placement: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator configures for a node.

    Attributes:
        reserved_cpus, reserved_memory_mb, reserved_disk_mb: reserved for the host.
        configured_ratios: override the ratios of the row.
        initial_ratios: ratios of a row that has none; all three are set.
        cpu_shared_set, cpu_dedicated_set: None = not configured.
        numa_networks: network -> ids of the NUMA cells of its interfaces.
        limits_numa_cells: whether the node's ratios limit each of its NUMA cells as well.
        withholds_huge_pages: whether placement is offered no memory that only huge pages can take.
        held_fact_expiry: seconds after which a held fact is unknown.
        claim_timeout: seconds after which a held claim may expire, and a confirmed
            one whose guest never came is a warning.
        host_ip: address stored in the rows.
        providers: what provider.yaml files add to nodes; no two identify one node alike.
        withholds_unresolved: withhold what guests may use by names that nothing explains;
            else only warn of it.
        ignores_inactive: instances that are off take only their disk.
        engine_modes: driver -> mode, of those whose engine asks before it starts a guest.
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
    claim_timeout: int = 600
    host_ip: str = "127.0.0.1"
    pci: PciPolicy = PciPolicy()
    numa_networks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    limits_numa_cells: bool = True
    withholds_huge_pages: bool = False
    providers: tuple[ProviderConfig, ...] = ()
    withholds_unresolved: bool = True
    ignores_inactive: bool = False
    engine_modes: Mapping[str, AdmissionMode] = field(default_factory=dict)

    def without_held_facts(self) -> "Policy":
        """Return this policy for a node that exists no longer: failed facts are not held."""
        return replace(self, held_fact_expiry=NEVER_HELD)


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
class Multipliers:
    """Multipliers of the free amounts of each resource when nodes are weighed.

    Positive ones spread the load; negative ones fill one node after the other.
    """

    ram: float = 1.0
    cpu: float = 1.0
    disk: float = 1.0


@dataclass(frozen=True, slots=True)
class CandidatePolicy:
    """Settings by which candidates are found and ordered.

    Attributes:
        service_down_time: seconds of silence after which a service is down.
    """

    service_down_time: int
    multipliers: Multipliers = Multipliers()
    order: CandidateOrder = CandidateOrder.SPREAD


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of schedulers.

    Attributes:
        host_subset_size: number of best candidates among which a claim chooses.
        nodes_to_weigh: number of nodes with room of which the best are found; 0 = all.
    """

    multipliers: Multipliers = Multipliers()
    host_subset_size: int = 1
    nodes_to_weigh: int = 100


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of the agent's core.

    Attributes:
        host: name of the host that this agent manages.
        state_path: directory of the agent's own files.
        audit_interval: seconds between audits; None = only on demand.
        probe_timeout: seconds after which a probe counts as hung.
        max_concurrent_audits: number of nodes read in parallel.
        report_interval: seconds between heartbeats.
        service_down_time: seconds without a heartbeat after which a service is down.
        graceful_shutdown_timeout: seconds that a running audit may take to finish.
        is_packing_cells: fill NUMA cells one after the other instead of evenly.
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
    is_packing_cells: bool = False


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """Settings of the reporter to placement.

    Attributes:
        workers: number of threads that send requests.
        timeout: seconds without a byte of an answer after which a request fails.
        refresh_interval: seconds between checks of the providers' generations; 0 = never.
        leak_grace: seconds after which a consumer that the ledger does not know is leaked.
        heals_leaks: whether leaked consumers are deleted.
        reports_devices: whether managed PCI devices have providers.
    """

    workers: int
    timeout: float
    refresh_interval: float
    leak_grace: float
    heals_leaks: bool
    reports_devices: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where and how a process serves HTTP.

    Attributes:
        option_group: of the options, for messages.
        listen, port: where it serves.
        threads: requests that are carried out in parallel.
        cert_file, key_file: of TLS; None = without.
        max_body_bytes: of the longest accepted body.
        graceful_shutdown_timeout: seconds that running requests may take to end.
    """

    option_group: str = "api"
    listen: str
    port: int
    threads: int
    cert_file: str | None
    key_file: str | None
    max_body_bytes: int
    graceful_shutdown_timeout: int


@dataclass(frozen=True, slots=True)
class ApiSettings(ServerSettings):
    """Settings of the REST service.

    Attributes:
        host: name in its services row.
        public_url: what clients use, if it is another URL than they request.
        grafana_url: of a dashboard to which the page links.
        insecure_power_actions: accept Nova's GETs of power actions without TLS.
        database_timeout: seconds that the database may take in one request.
        max_limit: the longest page of a list, also the default.
        metrics_per_node: the metrics have series for each node.
        open_metrics: the metrics need no credentials.
        overview_max_age: seconds for which an overview is kept at least.
        overview_max_nodes: nodes of an overview.
        held_fact_expiry: seconds after which a node that was not read is stale.
        service_down_time: seconds without a heartbeat after which a service is down.
        report_interval: seconds between heartbeats.
    """

    host: str
    public_url: str | None
    grafana_url: str | None
    insecure_power_actions: bool
    database_timeout: int
    max_limit: int
    metrics_per_node: bool
    open_metrics: bool
    overview_max_age: float
    overview_max_nodes: int
    held_fact_expiry: int
    service_down_time: int
    report_interval: int
