"""The composition root: configuration becomes settings, settings become parts.

The only module beside the commands that reads the configuration, and the only
one that knows which concrete driver and store there are.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_utils import netutils

from nodetracker.accounting.health import judge_health
from nodetracker.accounting.liveness import explain_short_down_time
from nodetracker.announcing import AuditAnnouncer, announce_store
from nodetracker.broker import Broker
from nodetracker.clock import DatabaseClock
from nodetracker.compute.identity import ensure_compute_id, read_incarnation
from nodetracker.compute.manager import ComputeManager
from nodetracker.compute.operations import HostOperations
from nodetracker.compute.service import ComputeService
from nodetracker.conf.opts import DATABASE_GROUP, list_registered
from nodetracker.conf.pci_entries import parse_aliases, parse_device_specs
from nodetracker.errors import ConfigError
from nodetracker.host.power import PowerSwitch
from nodetracker.host.roots import Roots
from nodetracker.model.cpuset import CpuSet, parse_cpu_set, render_cpu_set
from nodetracker.model.service import CONDUCTOR_BINARY, Incarnation
from nodetracker.model.status import AgentStatus
from nodetracker.ports import AuditObserver, Driver, LedgerTerms, Store
from nodetracker.settings import (
    DEFAULT_AUDIT_INTERVAL,
    AgentSettings,
    AllocationRatios,
    PciPolicy,
    Policy,
    ReservedPages,
)
from nodetracker.units import parse_page_size_kb
from nodetracker.virt.composite import CompositeDriver
from nodetracker.virt.loader import load_plugin
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner

if TYPE_CHECKING:  # imported late: not every program needs them
    from nodetracker.conductor.service import ConductorService
    from nodetracker.db.engine import DatabaseSettings
    from nodetracker.db.store import SqlStore
    from nodetracker.metrics.agent import AgentMetrics
    from nodetracker.metrics.endpoint import Endpoint
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import RpcServer

LOG = logging.getLogger(__name__)

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Agent:
    """The parts of one agent, put together and not yet started.

    Attributes:
        endpoint: where its metrics and health are served, None when nowhere.
        notifier: sends what it tells, None without a broker.
    """

    settings: AgentSettings
    incarnation: Incarnation
    store: Store
    probes: ProbeRunner
    driver: Driver
    manager: ComputeManager
    service: ComputeService
    endpoint: "Endpoint | None"
    notifier: "NotificationSender | None"

    def reconfigure(self, settings: AgentSettings) -> None:
        """Go on by other settings, as far as they may change in a running agent."""
        self.probes.change_timeout(settings.probe_timeout)
        self.service.reconfigure(settings)


def build_agent(
    conf: cfg.ConfigOpts,
    observers: Sequence[AuditObserver] = (),
    store: Store | None = None,
    is_served: bool = True,
) -> Agent:
    """Put an agent together; nothing is connected or started.

    Args:
        observers: are told of every audit.
        store: to be used instead of one of its own.
        is_served: whether it answers others: by an endpoint, if ``[metrics]``
            wants one, and by RPC, if there is a ``transport_url``.

    Raises:
        ConfigError: a value cannot be used; the message names it.
        IdentityError: the agent's identity cannot be read or made.
    """
    settings = build_settings(conf)
    broker = Broker(conf)
    store = store or build_store(conf, broker=broker)
    notifier = broker.make_notifier(f"compute:{settings.host}")
    if notifier is not None:
        observers = [*observers, AuditAnnouncer(settings.host, notifier)]
        if conf.conductor.use_local:  # conductors tell of what they do
            store = announce_store(store, notifier)
    probes = build_probes(settings)
    driver = build_driver(conf, settings, probes)
    compute_id = ensure_compute_id(Path(settings.state_path))
    incarnation = read_incarnation(compute_id, settings.report_interval)
    endpoint: Endpoint | None = None
    if is_served and conf.metrics.enabled:
        metrics, endpoint = _build_endpoint(conf, probes, notifier, lambda: manager.status())
        observers = [*observers, metrics]
    manager = ComputeManager(
        settings, incarnation, version("nodetracker"), driver, store, observers
    )
    server: RpcServer | None = None
    if is_served and broker.is_configured:
        operations = HostOperations(settings.host, manager, driver, store, build_terms(conf))
        server = broker.serve_agent(settings.host, operations, manager.database_clock)
    service = ComputeService(settings, manager, server)
    return Agent(settings, incarnation, store, probes, driver, manager, service, endpoint, notifier)


def list_messaging_options() -> list[tuple[str | None, Sequence[cfg.Opt]]]:
    """Return (group, options) of the messaging library; nothing where it is not installed."""
    from nodetracker.rpc.transport import list_options

    try:
        return list_options()
    except ImportError:
        return []


def build_conductor(conf: cfg.ConfigOpts) -> "ConductorService":
    """Put a conductor together; nothing is connected or started.

    Raises:
        ConfigError: a value cannot be used; the message names it.
    """
    from nodetracker.conductor.broker_watch import BrokerWatch
    from nodetracker.conductor.fleet_watch import FleetWatch
    from nodetracker.conductor.interface import CONDUCTOR
    from nodetracker.conductor.membership import Membership
    from nodetracker.conductor.service import ConductorService
    from nodetracker.db.store import open_store
    from nodetracker.rpc.server import RpcServer

    check_values(conf)
    host, interval = _host_name(conf), conf.report_interval
    broker = Broker(conf)
    broker.connect()
    # Each worker may hold a connection, and the heartbeat must never wait for one.
    database = build_database_settings(conf)
    pool = {"max_pool_size": conf.conductor.workers + 1}
    store: Store = open_store(replace(database, options={**database.options, **pool}))
    notifier = broker.make_notifier(f"conductor:{host}")
    if notifier is not None:
        store = announce_store(store, notifier)
    clock = DatabaseClock()
    server = RpcServer(broker.connect, CONDUCTOR, host, store, clock, conf.conductor.workers)
    caller, now = broker.caller, CONDUCTOR.methods["now"]
    watch = BrokerWatch(lambda: caller.call(CONDUCTOR, host, now, {}, min(5.0, interval)))
    incarnation = read_incarnation(str(uuid.uuid4()), interval)
    membership = Membership(
        store,
        host,
        CONDUCTOR_BINARY,
        CONDUCTOR.topic,
        version("nodetracker"),
        incarnation,
        clock,
        watch.state,
    )
    fleet = FleetWatch(store, host, conf.service_down_time)
    return ConductorService(
        host, store, server, membership, watch, fleet, interval, conf.graceful_shutdown_timeout
    )


def build_store(
    conf: cfg.ConfigOpts, is_read_only: bool = False, broker: Broker | None = None
) -> Store:
    """Make the store that the configuration names: the database's, or the conductors'.

    It connects at its first use.

    Args:
        is_read_only: for a program that only looks; it leaves no file behind.
        broker: the process's own, if it has one already.

    Raises:
        ConfigError: the URL cannot be used, or its database module is missing.
    """
    if conf.conductor.use_local:
        return build_sql_store(conf, is_read_only)
    from nodetracker.conductor.client import open_conductor_store

    return open_conductor_store(
        (broker or Broker(conf)).caller, beat_seconds=float(conf.report_interval)
    )


def build_sql_store(conf: cfg.ConfigOpts, is_read_only: bool = False) -> "SqlStore":
    """Make the store over the database that ``[database]`` names; see `build_store`."""
    from nodetracker.db.store import open_store

    return open_store(replace(build_database_settings(conf), is_read_only=is_read_only))


def build_database_settings(conf: cfg.ConfigOpts) -> "DatabaseSettings":
    """Read the ``[database]`` group."""
    from nodetracker.db.engine import DatabaseSettings

    values = {name: conf[DATABASE_GROUP][name] for name in conf[DATABASE_GROUP]}
    connection = values.pop("connection")
    if not connection:
        raise ConfigError("[database] connection: is empty")
    return DatabaseSettings(connection=connection, options=values)


def build_settings(conf: cfg.ConfigOpts) -> AgentSettings:
    """Read everything that the agent's core runs by, checking each value.

    Raises:
        ConfigError: a value is malformed or contradicts another one.
    """
    settings = read_settings(conf)
    problem = explain_short_down_time(settings.service_down_time, settings.report_interval)
    if problem is not None:
        raise ConfigError(problem)
    return settings


def read_settings(conf: cfg.ConfigOpts) -> AgentSettings:
    """Read the settings also when no agent would start by them.

    Raises:
        ConfigError: a value is malformed.
    """
    check_values(conf)
    interval = conf.compute.update_resources_interval
    return AgentSettings(
        host=_host_name(conf),
        state_path=conf.state_path,
        policy=_build_policy(conf),
        audit_interval=None if interval < 0 else interval or DEFAULT_AUDIT_INTERVAL,
        probe_timeout=conf.compute.probe_timeout,
        max_concurrent_audits=conf.compute.max_concurrent_audits,
        report_interval=conf.report_interval,
        service_down_time=conf.service_down_time,
        graceful_shutdown_timeout=conf.graceful_shutdown_timeout,
        claim_timeout=conf.compute.claim_timeout,
        is_packing_cells=conf.compute.packing_host_numa_cells_allocation_strategy,
    )


def build_terms(conf: cfg.ConfigOpts) -> LedgerTerms:
    """Read what ledger transactions go by.

    Raises:
        ConfigError: an alias is malformed.
    """
    return LedgerTerms(
        conf.service_down_time,
        conf.compute.claim_timeout,
        conf.compute.packing_host_numa_cells_allocation_strategy,
        parse_aliases(conf.pci.alias or ()),
    )


def build_probes(settings: AgentSettings) -> ProbeRunner:
    """Make the runner of all probes; its threads come when they are needed."""
    return ProbeRunner(settings.probe_timeout, settings.max_concurrent_audits * 2)


def build_driver(conf: cfg.ConfigOpts, settings: AgentSettings, probes: ProbeRunner) -> Driver:
    """Make the driver that ``[compute] compute_driver`` names, or one of several.

    Args:
        probes: runs its probes.

    Raises:
        ConfigError: there is no such driver, or its own options cannot be used.
    """
    names = conf.compute.compute_driver
    if not names:
        raise ConfigError("[compute] compute_driver: names no driver")
    if len(set(names)) != len(names):
        raise ConfigError("[compute] compute_driver: names a driver twice")
    environment = DriverEnvironment(
        host=settings.host,
        instances_path=conf.compute.instances_path,
        roots=Roots(
            procfs=Path(conf["host"]["procfs"]),
            sysfs=Path(conf["host"]["sysfs"]),
            rootfs=Path(conf["host"]["rootfs"]),
        ),
        probes=probes,
        power=PowerSwitch(conf.compute.allow_power_actions),
    )
    drivers = [(name, _build_one_driver(conf, name, environment)) for name in names]
    return drivers[0][1] if len(drivers) == 1 else CompositeDriver(drivers, probes)


def _build_one_driver(conf: cfg.ConfigOpts, name: str, environment: DriverEnvironment) -> Driver:
    plugin = load_plugin(name)
    values: Mapping[str, Any] = {
        option.dest: conf[plugin.group][option.dest] for option in plugin.options
    }
    return plugin.build(environment, values)


def _build_endpoint(
    conf: cfg.ConfigOpts,
    probes: ProbeRunner,
    notifier: "NotificationSender | None",
    status: Callable[[], AgentStatus],
) -> "tuple[AgentMetrics, Endpoint]":
    """Make the metrics, which watch the audits, and what serves them with the health."""
    from nodetracker.metrics.agent import AgentMetrics
    from nodetracker.metrics.endpoint import Endpoint
    from nodetracker.metrics.pages import make_application

    metrics = AgentMetrics(
        version("nodetracker"), conf.compute.compute_driver, status, probes, notifier
    )
    application = make_application(metrics.registry, lambda: judge_health(status()))
    return metrics, Endpoint(application, conf.metrics.listen, conf.metrics.port)


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every registered value once, as the library checks a value only when it is read.

    Raises:
        ConfigError: a value does not fit its option.
    """
    try:
        for _ in list_registered(conf):
            pass
    except (cfg.Error, ValueError) as error:
        raise ConfigError(_one_line(str(error))) from error


def _host_name(conf: cfg.ConfigOpts) -> str:
    return check_host_name(conf.DEFAULT.host)


def check_host_name(text: str) -> str:
    """Return a host's name without blanks around it.

    Raises:
        ConfigError: it is no name of a host.
    """
    name = text.strip()
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or " " in name:
        raise ConfigError(f"host: {name!r} is no name of a host")
    return name


def _build_policy(conf: cfg.ConfigOpts) -> Policy:
    group = conf.compute
    shared = _cpu_set("cpu_shared_set", group.cpu_shared_set)
    dedicated = _cpu_set("cpu_dedicated_set", group.cpu_dedicated_set)
    both = (shared or frozenset()) & (dedicated or frozenset())
    if both:
        raise ConfigError(
            f"[compute] cpu_shared_set and cpu_dedicated_set both name {render_cpu_set(both)}"
        )
    return Policy(
        reserved_cpus=group.reserved_host_cpus,
        reserved_memory_mb=group.reserved_host_memory_mb,
        reserved_disk_mb=group.reserved_host_disk_mb,
        reserved_pages=tuple(_reserved_pages(entry) for entry in group.reserved_huge_pages or ()),
        configured_ratios=AllocationRatios(
            group.cpu_allocation_ratio, group.ram_allocation_ratio, group.disk_allocation_ratio
        ),
        initial_ratios=AllocationRatios(
            group.initial_cpu_allocation_ratio,
            group.initial_ram_allocation_ratio,
            group.initial_disk_allocation_ratio,
        ),
        cpu_shared_set=shared,
        cpu_dedicated_set=dedicated,
        held_fact_expiry=group.held_fact_expiry,
        host_ip=conf.my_ip or netutils.get_my_ipv4(),
        pci=_build_pci_policy(conf),
        numa_networks=dict(_numa_network(entry) for entry in group.numa_network or ()),
    )


def _build_pci_policy(conf: cfg.ConfigOpts) -> PciPolicy:
    group = conf.pci
    return PciPolicy(
        specs=parse_device_specs(group.device_spec, group.report_in_placement),
        aliases=parse_aliases(group.alias),
        report_in_placement=group.report_in_placement,
    )


def _cpu_set(option: str, text: str | None) -> CpuSet | None:
    if text is None:
        return None
    try:
        cpus = parse_cpu_set(text)
    except ValueError as error:
        raise ConfigError(f"[compute] {option}: {error}") from error
    if not cpus:
        raise ConfigError(f"[compute] {option}: {text!r} names no CPU")
    return cpus


def _reserved_pages(entry: Mapping[str, str]) -> ReservedPages:
    try:
        if set(entry) != {"node", "size", "count"}:
            raise ValueError("needs node, size and count and nothing else")
        return ReservedPages(
            int(entry["node"]), parse_page_size_kb(entry["size"]), int(entry["count"])
        )
    except ValueError as error:
        text = ",".join(f"{key}:{value}" for key, value in entry.items())
        raise ConfigError(f"[compute] reserved_huge_pages: {text}: {error}") from error


def _numa_network(entry: str) -> tuple[str, CpuSet]:
    name, _, cells = entry.rpartition("=")
    try:
        if not name.strip():
            raise ValueError("is not NAME=CELLS")
        return name.strip(), parse_cpu_set(cells)
    except ValueError as error:
        raise ConfigError(f"[compute] numa_network: {entry}: {error}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())
