"""Build the REST service from its configuration."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from wsgiref.types import WSGIApplication

from oslo_config import cfg

from nodetracker.accounting.reports.health import evaluate_api_health
from nodetracker.api.agents import AgentCalls
from nodetracker.api.application import build_application
from nodetracker.api.auth.addresses import add_client_address
from nodetracker.api.call import Backend
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.api.layers import Layer, count_requests, proxy_layer, request_id_layer
from nodetracker.api.route import list_open_paths
from nodetracker.api.routes import list_routes
from nodetracker.api.server import Server
from nodetracker.api.service import ApiService
from nodetracker.api.watched_store import WatchedStore, make_outage_log
from nodetracker.bootstrap.access import Gate, accepts_insecure_power_actions, build_access
from nodetracker.bootstrap.broker import Broker
from nodetracker.bootstrap.placement import build_unserved_removals
from nodetracker.bootstrap.settings import (
    build_admission_policy,
    build_scheduler_settings,
    check_conductor_values,
)
from nodetracker.bootstrap.stores import build_purge, build_store
from nodetracker.bootstrap.values import (
    Problems,
    build_database_settings,
    build_from_options,
    read_host_name,
    read_value,
)
from nodetracker.compute.identity import read_incarnation
from nodetracker.conf.api import PROXY_GROUP, PROXY_HEADERS
from nodetracker.fleet.membership import Membership
from nodetracker.fleet.scheduler import Scheduler
from nodetracker.fleet.watch import Watcher
from nodetracker.ledger_announcements import LedgerAnnouncer, announcing_store
from nodetracker.metrics.api import ApiCounters, ApiMetrics, RequestCounter, StoreErrorCounter
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.health import AgentStatus, ApiStatus, Health
from nodetracker.model.service import API_BINARY
from nodetracker.model.settings import ApiSettings
from nodetracker.notifying_store import notifying_store
from nodetracker.ports import AgentDirectory, Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.notify import NotificationSender

POOL_SECONDS = 5
"""How long a request waits for a database connection."""

_SPARE_CONNECTIONS = 2  # for heartbeats and the watch, which must not wait


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the daemon and a foreign WSGI server both need."""

    settings: ApiSettings
    store: Store
    notifier: NotificationSender | None
    clock: DatabaseClock
    agents: AgentCalls
    broker: Broker
    counters: ApiCounters


def build_api(conf: cfg.ConfigOpts) -> tuple[ApiService, Server]:
    """Build the service; nothing is connected or started.

    Raises:
        ConfigError: a value is invalid; the message names it.
    """
    database = make_outage_log()
    parts = _build_parts(conf)
    parts = replace(parts, store=WatchedStore(parts.store, database))
    membership = Membership(
        parts.store, parts.settings.host, API_BINARY, "", version("nodetracker"),
        read_incarnation(str(uuid.uuid4()), parts.settings.report_interval), parts.clock,
    )  # fmt: skip

    def read_status() -> ApiStatus:
        return ApiStatus(
            database_error=database.error,
            heartbeat_age_seconds=membership.age_seconds,
            has_broker=parts.broker.is_configured,
            broker_error=_find_broker_error(parts),
        )

    application, gate = _build_application(conf, parts, read_status)
    server = Server(application, parts.settings, gate=gate)
    service = ApiService(
        parts.settings, server, parts.store, membership, parts.notifier, database,
        build_unserved_removals(conf, parts.store),
        build_purge(
            conf,
            parts.store,
            Watcher(parts.settings.host, API_BINARY, parts.settings.service_down_time),
        ),
    )  # fmt: skip
    return service, server


def build_wsgi_application(conf: cfg.ConfigOpts) -> WSGIApplication:
    """Build the application for a foreign WSGI server; nothing is connected or started.

    Raises:
        ConfigError: as `build_api`.
    """
    parts = _build_parts(conf)
    store_errors = parts.counters.store_errors
    store = WatchedStore(parts.store, make_outage_log(), store_errors.clear)
    parts = replace(parts, store=store)

    def read_status() -> ApiStatus:
        return ApiStatus(
            database_error=store_errors.error,
            has_heartbeat=False,
            has_broker=parts.broker.is_configured,
            broker_error=_find_broker_error(parts),
        )

    return _build_application(conf, parts, read_status)[0]


def build_own_server(
    conf: cfg.ConfigOpts,
    store: Store,
    agents: AgentDirectory,
    read_agent: Callable[[], AgentStatus],
) -> Server:
    """Build the server of an agent's own process, over its store and operations.

    Args:
        read_agent: returns the agent's status.

    Raises:
        ConfigError: as `build_api`.
    """
    settings = build_api_settings(conf)
    parts = _Parts(
        settings, store, None, DatabaseClock(), AgentCalls(agents), Broker(conf),
        _make_counters(settings),
    )  # fmt: skip

    def read_status() -> ApiStatus:
        agent = read_agent()
        return ApiStatus(
            database_error=agent.database_error,
            heartbeat_age_seconds=agent.heartbeat_age_seconds,
            has_broker=agent.has_broker,
            broker_error=agent.broker_error,
        )

    application, gate = _build_application(conf, parts, read_status)
    return Server(application, settings, gate=gate)


def build_api_settings(conf: cfg.ConfigOpts) -> ApiSettings:
    """Return the settings of the service, with every value checked.

    Raises:
        ConfigError: values are malformed or contradict others; it names all of them.
    """
    group, problems = conf.api, Problems()
    problems.collect(check_conductor_values, conf)
    if group.key_file and not group.cert_file:
        problems.add("[api] key_file: set, but cert_file is not")
    problems.raise_any()
    return build_from_options(
        ApiSettings,
        group,
        conf.compute,
        conf,
        host=read_host_name(conf),
        insecure_power_actions=accepts_insecure_power_actions(conf),
    )


def _build_parts(conf: cfg.ConfigOpts) -> _Parts:
    settings = build_api_settings(conf)
    broker = Broker(conf)
    clock = DatabaseClock()
    directory: AgentDirectory | None = None
    if broker.is_configured:
        broker.connect()  # an invalid value ends the start
        directory, clock = broker.find_agents(), broker.caller.clock
    notifier = broker.make_notifier(f"api:{settings.host}") if conf.conductor.use_local else None
    store = _build_store(conf, broker, settings.threads)
    if notifier is not None:
        store = notifying_store(store, notifier)
    if directory is not None:
        store = announcing_store(store, LedgerAnnouncer(directory))
    agents = AgentCalls(directory, lambda: clock.set(store.now()))
    return _Parts(settings, store, notifier, clock, agents, broker, _make_counters(settings))


def _make_counters(settings: ApiSettings) -> ApiCounters:
    return ApiCounters(
        RequestCounter(), ClaimCounter(), StoreErrorCounter(settings.service_down_time)
    )


def _find_broker_error(parts: _Parts) -> str | None:
    """Return why the broker cannot be used, as far as this process has tried."""
    notifications_error = None if parts.notifier is None else parts.notifier.error
    return notifications_error or parts.broker.call_error


def _build_store(conf: cfg.ConfigOpts, broker: Broker, threads: int) -> Store:
    """Build the store with a connection for each thread."""
    if not conf.conductor.use_local:
        return build_store(conf, broker=broker)
    from nodetracker.db.store import open_store

    database = build_database_settings(conf)
    pool = {
        "max_pool_size": threads + _SPARE_CONNECTIONS,
        "max_overflow": 0,
        "pool_timeout": POOL_SECONDS,
    }
    return open_store(replace(database, options={**database.options, **pool}))


def _build_application(
    conf: cfg.ConfigOpts, parts: _Parts, read_process: Callable[[], ApiStatus]
) -> tuple[WSGIApplication, Gate]:
    """Build the application, and the gate in front of its threads.

    Args:
        read_process: returns what this process knows of its database, heartbeats and broker.
    """
    settings, store = parts.settings, parts.store
    routes, has_proxy = list_routes(settings.open_metrics), _is_behind_proxy(conf)
    access = build_access(conf, list_open_paths(routes), has_proxy)
    policy = build_admission_policy(conf)
    fleet = FleetCache(store, settings)

    def read_health() -> Health:
        read_problem = access.read_user_file_problem
        status = replace(
            read_process(),
            service_down_time=settings.service_down_time,
            has_user_file=read_problem is not None,
            user_file_error=None if read_problem is None else read_problem(),
            overview_age_seconds=fleet.age_seconds,
        )
        return evaluate_api_health(status)

    backend = Backend(
        version=version("nodetracker"),
        settings=settings,
        store=store,
        agents=parts.agents,
        policy=policy,
        scheduler=Scheduler(store, policy, build_scheduler_settings(conf)),
        fleet=fleet,
        authorizer=access.authorizer,
        delete_queues=parts.broker.delete_service_queues,
        counters=parts.counters,
        metrics=ApiMetrics(
            version("nodetracker"),
            parts.counters,
            access.failures,
            lambda: read_process().database_error is None,
        ),
        read_health=read_health,
        sessions=access.sessions,
    )
    counting: Layer = partial(count_requests, counter=parts.counters.requests)
    # Before the library's layer, which takes whatever a client says for its address.
    noting: Layer = partial(add_client_address, has_proxy=has_proxy)
    proxies: tuple[Layer, ...] = (proxy_layer(conf),) if has_proxy else ()
    layers = (counting, noting, *proxies, request_id_layer, access.layer)
    return build_application(backend, routes, layers), access.gate


def _is_behind_proxy(conf: cfg.ConfigOpts) -> bool:
    """Return the library's option without the library, which `proxy_layer` imports.

    Raises:
        ConfigError: its value is invalid.
    """
    conf.register_opt(PROXY_HEADERS, group=PROXY_GROUP)
    return bool(read_value(conf, PROXY_GROUP, PROXY_HEADERS.name))
