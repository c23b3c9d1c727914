"""Build a conductor from its configuration."""

import resource
import uuid
from functools import partial
from importlib.metadata import version

from oslo_config import cfg

from nodetracker.bootstrap.clients import Broker
from nodetracker.bootstrap.options.default import CONDUCTOR
from nodetracker.bootstrap.settings import build_admission_policy, check_conductor_values
from nodetracker.bootstrap.stores import (
    build_purge,
    build_sql_store,
    build_tolerance_watch,
    check_database,
    require_database,
)
from nodetracker.bootstrap.values import Problems, build_from_options, read_host_name
from nodetracker.compute.identity import read_incarnation
from nodetracker.conductor.application import CALLS, ConductorApplication
from nodetracker.conductor.authorization import Authorizer
from nodetracker.conductor.bodies import MAX_BODY_BYTES
from nodetracker.conductor.gate import LANES, STRANGER_LANE, URGENT_LANE, Gate
from nodetracker.conductor.service import AgentWatch, ConductorService
from nodetracker.db.schema.revisions import serves_older
from nodetracker.model.service import CONDUCTOR_BINARY
from nodetracker.model.settings import Quotas, ServerSettings
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.membership import Membership
from nodetracker.usecases.watch import FleetWatch, Watcher
from nodetracker.web.listeners import is_loopback
from nodetracker.web.server import Server, check_tls

_MAX_CONNECTIONS = 20_000
"""Agents keep one to three each; half of the process's file descriptors limit them, too."""


def build_conductor(conf: cfg.ConfigOpts) -> tuple[ConductorService, Server]:
    """Build a conductor; nothing is connected or started.

    Raises:
        ConfigError: values are invalid; it names all of them.
    """
    problems, broker = Problems(), Broker(conf)
    settings = problems.collect(build_conductor_settings, conf)
    problems.collect(broker.check)
    problems.collect(check_database, conf)
    policy = problems.collect(build_admission_policy, conf)
    problems.raise_any()
    host, interval = read_host_name(conf), conf.report_interval
    notifier = broker.make_notifier(f"conductor:{host}")
    # A connection for each thread; heartbeats, this process's own included, and the look-up of
    # credentials never wait for one that a call holds.
    observers = broker.make_observers(notifier)
    pool = {"max_pool_size": settings.threads + LANES[STRANGER_LANE]}
    store = build_sql_store(conf, observers=observers, pool=pool)
    pool = {"max_pool_size": LANES[URGENT_LANE] + 2}
    heartbeats = build_sql_store(conf, observers=observers, pool=pool)
    clock = DatabaseClock()
    quotas = build_from_options(Quotas, conf.conductor)
    authorizer = Authorizer(store.limited(quotas), policy, conf.service_down_time)
    application = ConductorApplication(
        f"conductor {host}",
        store,
        heartbeats,
        authorizer,
        clock,
        serves_older=lambda: serves_older(store.engine),
    )
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    server = Server(
        application,
        settings,
        gate=lambda reader: Gate(reader, application),
        max_connections=max(16, min(_MAX_CONNECTIONS, descriptors // 2)),
        lanes=LANES,
        on_exhausted=partial(application.limits.note_failure, CALLS),
    )
    watch = AgentWatch(application, store, conf.service_down_time)
    membership = Membership(
        heartbeats,
        host,
        CONDUCTOR_BINARY,
        "",
        version("nodetracker"),
        read_incarnation(str(uuid.uuid4()), interval),
        clock,
        watch.state,
    )
    watcher = Watcher(host, CONDUCTOR_BINARY, conf.service_down_time)
    service = ConductorService(
        host,
        store,
        server,
        application,
        membership,
        watch,
        FleetWatch(store, host, conf.service_down_time),
        notifier,
        interval,
        conf.graceful_shutdown_timeout,
        build_purge(conf, store, watcher),
        build_tolerance_watch(conf, store, watcher),
    )
    return service, server


def build_conductor_settings(conf: cfg.ConfigOpts) -> ServerSettings:
    """Return where a conductor serves agents, with every value that it uses checked.

    Raises:
        ConfigError: values are malformed or contradict others; it names all of them.
    """
    group, problems = conf.conductor, Problems()
    problems.collect(check_conductor_values, conf)
    problems.collect(require_database, conf)
    problems.collect(check_tls, CONDUCTOR.name, group.cert_file, group.key_file)
    if not group.cert_file and not group.allow_http and not is_loopback(group.listen):
        problems.add(
            f"[conductor] cert_file: not set, and HTTP on {group.listen} shows the agents' "
            "credentials to the network; set cert_file and key_file, or allow_http = true"
        )
    problems.raise_any()
    return build_from_options(
        ServerSettings,
        group,
        conf,
        option_group="conductor",
        threads=group.workers,
        max_body_bytes=MAX_BODY_BYTES,
    )
