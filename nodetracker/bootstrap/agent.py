"""Build an agent and its drivers from the configuration."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.accounting.audit.provider_config import explain_empty
from nodetracker.bootstrap.clients import Broker, build_placement_reporter, check_placement
from nodetracker.bootstrap.options.plugins import DRIVERS, MONITORS
from nodetracker.bootstrap.settings import build_roots, build_settings
from nodetracker.bootstrap.stores import build_store, check_store
from nodetracker.bootstrap.values import Problems, is_set
from nodetracker.compute.door import Door, Engine
from nodetracker.compute.identity import ensure_compute_id, read_incarnation
from nodetracker.compute.manager import ComputeManager, HostOperations
from nodetracker.compute.service import ComputeService
from nodetracker.model.errors import ConfigError
from nodetracker.model.health import AgentStatus
from nodetracker.model.service import Incarnation
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.start import AdmissionMode
from nodetracker.ports import (
    AuditObserver,
    CallServer,
    Driver,
    DriverCapability,
    Store,
    StoreObserver,
)
from nodetracker.process.outage import OutageLog
from nodetracker.rpc.door_socket import SOCKET_FILE as DOOR_SOCKET_FILE
from nodetracker.rpc.door_socket import DoorSocket
from nodetracker.rpc.host_calls import HostCalls
from nodetracker.rpc.wake_socket import SOCKET_FILE, WakeSocket
from nodetracker.views.health import evaluate_health
from nodetracker.virt.composite import CompositeDriver
from nodetracker.virt.host.power import PowerSwitch
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import read_load_average
from nodetracker.virt.monitored import MonitoredDriver, MonitorSource
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin, Values
from nodetracker.virt.probes import ProbeRunner

if TYPE_CHECKING:  # imported late: not every program needs them
    from nodetracker.metrics.agent import AuditCounter
    from nodetracker.placement.reporter import PlacementReporter
    from nodetracker.rpc.notify import NotificationSender
    from nodetracker.rpc.server import WakeServer
    from nodetracker.web.waitress_server import WaitressServer

LOG = logging.getLogger(__name__)

_REMOVAL_SECONDS = 60.0  # between looks for removals that others recorded
PROBES_PER_NODE = 20
"""At least as many as run concurrently for one node, so that frozen nodes delay no other."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The parts of one agent, built and not yet started.

    Attributes:
        calls: carries out those of other processes, and of a REST service in this one; None
            unless it is served.
        metrics_server: serves its metrics and health, None if they are not served.
        notifier: sends its notifications, None without a broker.
        reporter: reports its nodes to placement, None unless it is enabled.
        read_status: returns its current status, without any query.
    """

    settings: AgentSettings
    incarnation: Incarnation
    store: Store
    probes: ProbeRunner
    driver: Driver
    manager: ComputeManager
    service: ComputeService
    calls: HostCalls | None
    metrics_server: "WaitressServer | None"
    notifier: "NotificationSender | None"
    reporter: "PlacementReporter | None"
    read_status: Callable[[], AgentStatus]

    def check(self, settings: AgentSettings) -> None:
        """Check settings of a reload against the nodes.

        Raises:
            ConfigError: they do not fit.
        """
        self.manager.check(settings)

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings, as far as they may change in a running agent."""
        self.probes.change_timeout(settings.probe_timeout)
        self.service.reconfigure(_with_admission(settings, self.settings.policy.engine_modes))


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The parts of an agent that are made of its configuration alone.

    Attributes:
        engines: see `BuiltDriver`.
    """

    settings: AgentSettings
    broker: Broker
    probes: ProbeRunner
    driver: Driver
    engines: Mapping[str, Engine | None]


def prepare_agent(conf: cfg.ConfigOpts) -> AgentParts:
    """Build what an agent's configuration decides, and log what it can run with but should not.

    Nothing is connected, started or written: ``config check`` does the same.

    Raises:
        ConfigError: values are invalid; it names all of them.
    """
    problems, broker = Problems(), Broker(conf)
    settings = problems.collect(build_settings, conf)
    usable = settings or AgentSettings("", "", Policy())
    problems.collect(_check_state_path, conf)
    problems.collect(broker.check)
    problems.collect(check_store, conf)
    probes = build_probes(usable)
    driver = problems.collect(build_driver, conf, usable, probes)
    problems.collect(check_placement, conf)
    problems.raise_any()
    policy = settings.policy
    if policy.cpu_dedicated_set is not None and policy.cpu_shared_set is None:
        LOG.warning(
            "[compute] cpu_shared_set: not set, while cpu_dedicated_set is: no CPU is left for "
            "guests that share CPUs"
        )
    for config in policy.providers:
        if config.is_empty:
            LOG.warning("%s", explain_empty(config))
    if not conf.conductor.use_local:
        from nodetracker.bootstrap.conductor_client import find_missing_token

        if missing := find_missing_token(conf):
            LOG.warning("%s", missing)
    modes = {name: engine.mode for name, engine in driver.engines.items() if engine is not None}
    known = _with_admission(settings, modes)
    return AgentParts(known, broker, probes, driver.driver, driver.engines)


def _with_admission(settings: AgentSettings, modes: Mapping[str, AdmissionMode]) -> AgentSettings:
    """Return settings with the modes of the engines, which do not change in a running agent."""
    return replace(settings, policy=replace(settings.policy, engine_modes=modes))


def _check_state_path(conf: cfg.ConfigOpts) -> None:
    """Check that the directory of the agent's files exists, or could be created."""
    path = Path(conf.state_path)
    nearest = next(found for found in (path, *path.parents) if found.exists())
    if not nearest.is_dir():
        raise ConfigError(f"[DEFAULT] state_path: {path}: {nearest} is not a directory")


def build_agent(
    conf: cfg.ConfigOpts,
    parts: AgentParts | None = None,
    observers: Sequence[AuditObserver] = (),
    open_store: Callable[[Sequence[StoreObserver]], Store] | None = None,
    is_served: bool = True,
    database: OutageLog | None = None,
) -> Agent:
    """Build an agent; nothing is connected or started.

    Args:
        parts: of this configuration, unless they are to be built.
        observers: notified of every audit.
        open_store: opens the store for its observers; None = the configured one.
        database: see `ComputeManager`.
        is_served: whether it takes calls and, if configured, serves metrics and health,
            and reports to placement after each audit.

    Raises:
        ConfigError: a value is invalid; the message names it.
        IdentityError: the agent's uuid cannot be read or created.
    """
    parts = parts or prepare_agent(conf)
    settings, broker, probes, driver = parts.settings, parts.broker, parts.probes, parts.driver
    notifier = broker.make_notifier(f"compute:{settings.host}")
    # Conductors notify of their changes themselves.
    watching = broker.make_observers(notifier) if conf.conductor.use_local else []
    if open_store is not None:
        store = open_store(watching)
    else:
        store = build_store(conf, is_agent=True, observers=watching)
    observers = list(observers)
    compute_id = ensure_compute_id(Path(settings.state_path))
    incarnation = read_incarnation(compute_id, settings.report_interval)
    reporter = build_placement_reporter(conf, settings.host, store)
    if reporter is not None:
        observers.append(reporter)
    audits = _build_audit_counter() if is_served and conf.metrics.enabled else None
    if audits is not None:
        observers.append(audits)
    engines = {name: engine for name, engine in parts.engines.items() if engine is not None}
    door = Door(
        engines,
        store,
        lambda: (manager.settings, manager.policy),
        lambda nodename, uuid: manager.note_end(nodename, uuid),
        lambda nodename: manager.ledger_moved(nodename),
    )
    if engines:
        observers.append(door)
    sources = [door.list_warnings, *([] if reporter is None else [reporter.list_warnings])]
    manager = ComputeManager(
        settings, incarnation, version("nodetracker"), driver, store, observers,
        read_load_average=partial(read_load_average, build_roots(conf)),
        list_warnings=lambda: [warning for source in sources for warning in source()],
        database=database,
    )  # fmt: skip
    calls, server = None, None  # unless it is served
    servers: list[CallServer] = []
    if is_served:
        operations = HostOperations(settings.host, manager, driver)
        calls = HostCalls(settings.host, manager, operations, store, manager.database_clock)
        if broker.is_configured:
            server = broker.serve_wakes(settings.host, calls.wake)
        sockets = WakeSocket(Path(settings.state_path) / SOCKET_FILE, calls.wake)
        servers = [part for part in (reporter, calls, sockets, server) if part is not None]
    read_status = partial(_read_status, manager, broker, server, notifier, reporter)
    metrics_server = None
    if audits is not None:
        metrics_server = _build_metrics_server(
            conf, audits, read_status, probes, notifier, door if engines else None
        )
    asked = None
    if is_served and parts.engines:
        asked = DoorSocket(Path(settings.state_path) / DOOR_SOCKET_FILE, door.answer)
    service = ComputeService(settings, manager, servers, asked)
    if reporter is not None and reporter.removals is not None:
        removals = reporter.removals
        service.add_tasks(
            "placement-removals", removals, _REMOVAL_SECONDS, removals.requests, is_slow=True
        )
        removals.requests.request()  # those that are left
    return Agent(
        settings, incarnation, store, probes, driver, manager, service, calls, metrics_server,
        notifier, reporter, read_status,
    )  # fmt: skip


def _read_status(
    manager: ComputeManager,
    broker: Broker,
    server: "WakeServer | None",
    notifier: "NotificationSender | None",
    reporter: "PlacementReporter | None",
) -> AgentStatus:
    """Return the agent's status, and what it uses the broker and placement for."""
    return replace(
        manager.status(),
        has_broker=broker.is_configured,
        rpc_error=None if server is None else server.error,
        notifications_error=None if notifier is None else notifier.error,
        placement=None if reporter is None else reporter.status(),
    )


def build_probes(settings: AgentSettings) -> ProbeRunner:
    """Return the runner of all probes; it starts threads when they are needed."""
    return ProbeRunner(settings.probe_timeout, settings.max_concurrent_audits * PROBES_PER_NODE)


@dataclass(frozen=True, slots=True)
class BuiltDriver:
    """The driver of an agent.

    Attributes:
        engines: that may ask before they start guests, by the name of their driver; None = it
            learns that admission is off.
    """

    driver: Driver
    engines: Mapping[str, Engine | None]


def build_driver(conf: cfg.ConfigOpts, settings: AgentSettings, probes: ProbeRunner) -> BuiltDriver:
    """Build the driver that ``[compute] compute_driver`` names; several drivers become one.

    It also runs the monitors of ``[compute] compute_monitors``.

    Args:
        probes: runs its probes.

    Raises:
        ConfigError: a driver or monitor does not exist, or its options are invalid.
    """
    names = conf.compute.compute_driver
    if not names:
        raise ConfigError("[compute] compute_driver: must not be empty")
    problems = Problems()
    for option, noun in (("compute_driver", "driver"), ("compute_monitors", "monitor")):
        given = conf.compute[option]
        for name in sorted({name for name in given if given.count(name) > 1}):
            problems.add(f"[compute] {option}: duplicate {noun} {name!r}")
    environment = DriverEnvironment(
        host=settings.host,
        instances_path=conf.compute.instances_path,
        roots=build_roots(conf),
        probes=probes,
        power=PowerSwitch(conf.compute.allow_power_actions),
    )
    drivers: list[tuple[str, Driver]] = []
    engines: dict[str, Engine | None] = {}
    for name in dict.fromkeys(names):
        parts = problems.collect(_build_drivers, conf, name, environment) or []
        drivers += parts
        own = [driver for _, driver in parts]
        if own and DRIVERS.load(name).make_start_reader is not None:
            engines[name] = problems.collect(_build_engine, conf, environment, name, own)
    sources = tuple(
        problems.collect(_find_monitor, name, environment.roots)
        for name in conf.compute.compute_monitors
    )
    problems.raise_any()
    driver = drivers[0][1] if len(drivers) == 1 else CompositeDriver(drivers, probes)
    return BuiltDriver(_with_monitors(conf, driver, sources, probes), engines)


def _with_monitors(
    conf: cfg.ConfigOpts, driver: Driver, sources: tuple[MonitorSource, ...], probes: ProbeRunner
) -> Driver:
    if not sources:
        return driver
    if DriverCapability.REMOTE_NODES in driver.capabilities:
        if is_set(conf, "compute", "compute_monitors"):
            LOG.warning(
                "[compute] compute_monitors: not used, as the nodes of %s are not this machine",
                conf.compute.compute_driver[0],
            )
        return driver
    return MonitoredDriver(driver, sources, probes)


def _build_engine(
    conf: cfg.ConfigOpts,
    environment: DriverEnvironment,
    name: str,
    drivers: Sequence[Driver],
) -> Engine | None:
    """Return the engine of one plugin's driver, None if it is not to ask.

    Raises:
        ConfigError: options of the driver, or what instances take that are off, exclude it.
    """
    plugin = DRIVERS.load(name)
    assert plugin.make_start_reader is not None
    values = _read_values(conf, plugin)
    mode = AdmissionMode(values["admission"] or conf.compute.admission)
    if mode is AdmissionMode.OFF:
        return None
    if conf.compute.inactive_guests != "ignored":
        group = plugin.group if values["admission"] else "compute"
        raise ConfigError(
            f"[{group}] admission: needs [compute] inactive_guests = ignored: while instances that "
            "are off count as if they ran, their start changes nothing that could be refused"
        )
    if len(drivers) != 1:
        raise ConfigError(f"[{plugin.group}] admission: needs one engine, not {len(drivers)}")
    return Engine(mode, plugin.make_start_reader(drivers[0], environment, values))


def _find_monitor(name: str, roots: Roots) -> MonitorSource:
    plugin = MONITORS.load(name)
    return MonitorSource(name, plugin.metrics, lambda: plugin.build(roots))


def _build_drivers(
    conf: cfg.ConfigOpts, name: str, environment: DriverEnvironment
) -> list[tuple[str, Driver]]:
    """Return the drivers of one plugin with their names; most have a single one."""
    plugin = DRIVERS.load(name)
    values = _read_values(conf, plugin)
    parts = [(name, values)] if plugin.split is None else plugin.split(values)
    return [(part, plugin.build(environment, its_values)) for part, its_values in parts]


def _read_values(conf: cfg.ConfigOpts, plugin: DriverPlugin) -> Values:
    return {option.dest: conf[plugin.group][option.dest] for option in plugin.options}


def _build_audit_counter() -> "AuditCounter":
    from nodetracker.metrics.agent import AuditCounter

    return AuditCounter()


def _build_metrics_server(
    conf: cfg.ConfigOpts,
    audits: "AuditCounter",
    status: Callable[[], AgentStatus],
    probes: ProbeRunner,
    notifier: "NotificationSender | None",
    door: Door | None,
) -> "WaitressServer":
    """Build the server of metrics and health."""
    from nodetracker.metrics.agent import AgentMetrics
    from nodetracker.metrics.application import make_application
    from nodetracker.web.waitress_server import WaitressServer

    metrics = AgentMetrics(
        version("nodetracker"), conf.compute.compute_driver, audits, status, probes, notifier, door
    )
    application = make_application(metrics.registry, lambda: evaluate_health(status()))
    group = conf.metrics
    return WaitressServer("Metrics and health", application, group.listen, group.port)
