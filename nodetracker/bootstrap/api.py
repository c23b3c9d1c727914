"""Build the REST service from its configuration: its parts, authentication and authorization."""

import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.types import WSGIApplication, WSGIEnvironment

from oslo_config import cfg

from nodetracker.api.agents import AgentCalls
from nodetracker.api.application import REQUESTS, answer_exhaustion, build_application
from nodetracker.api.auth.addresses import add_client_address
from nodetracker.api.auth.browser import accept_session_cookie
from nodetracker.api.auth.layer import (
    LoginFailures,
    LoginGate,
    authenticate,
    drop_identity_headers,
    leave_open,
    recognize,
)
from nodetracker.api.call import Backend, Sessions
from nodetracker.api.context import Authenticator, Identity
from nodetracker.api.errors import render_refusal
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.api.layers import Layer, count_requests, proxy_layer, request_id_layer
from nodetracker.api.policies import PolicyAuthorizer, make_enforcer
from nodetracker.api.route import list_open_paths
from nodetracker.api.routes import list_routes
from nodetracker.bootstrap.clients import (
    Broker,
    build_agents,
    build_placement_healer,
    build_unserved_removals,
    check_placement,
)
from nodetracker.bootstrap.options.api import API, PROXY_GROUP, PROXY_HEADERS
from nodetracker.bootstrap.settings import (
    build_admission_policy,
    build_scheduler_settings,
    check_conductor_values,
)
from nodetracker.bootstrap.stores import (
    build_purge,
    build_sql_store,
    build_tolerance_watch,
    check_database,
    make_outage_log,
    watch_calls,
)
from nodetracker.bootstrap.values import (
    Problems,
    build_from_options,
    read_host_name,
    read_value,
)
from nodetracker.compute.identity import read_incarnation
from nodetracker.metrics.api import ApiCounters, ApiMetrics, RequestCounter, StoreErrorCounter
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.errors import ConfigError, ExhaustedError
from nodetracker.model.health import AgentStatus, ApiStatus, Health
from nodetracker.model.service import API_BINARY
from nodetracker.model.settings import ApiSettings
from nodetracker.ports import AgentDirectory, Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.membership import Membership
from nodetracker.process.outage import SETTLE_SECONDS, OutageLog
from nodetracker.rpc.notify import NotificationSender
from nodetracker.usecases.plans import HostPlanner
from nodetracker.usecases.scheduler import Scheduler
from nodetracker.views.health import evaluate_api_health
from nodetracker.web.admission import Application
from nodetracker.web.listeners import is_loopback
from nodetracker.web.server import Server, check_tls

if TYPE_CHECKING:
    from nodetracker.api.service import ApiService

LOG = logging.getLogger(__name__)


Gate = Callable[[Application], Application]

_UNPROTECTED = (
    "[api] listen = %s is not a loopback address and cert_file is not set: passwords are sent "
    "unencrypted unless a proxy adds TLS"
)


POOL_SECONDS = 5
"""How long a request waits for a database connection."""

_SPARE_CONNECTIONS = 2  # for heartbeats and the watch, which must not wait


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the API, and for what.

    Attributes:
        layer: makes requests carry the identity of their credentials.
        gate: lets requests log in before they get a thread, where that may take long.
        failures: requests with wrong credentials.
        read_user_file_problem: returns why nobody can log in; None without a user file.
        sessions: opens the sessions of browsers, None if the strategy has none.
    """

    layer: Layer
    gate: Gate
    authorizer: PolicyAuthorizer
    failures: LoginFailures
    read_user_file_problem: Callable[[], str | None] | None
    sessions: Sessions | None


@dataclass(frozen=True, slots=True)
class _Strategy:
    """A strategy of authentication, with the layer that it needs around it.

    Attributes:
        layer: None = none.
        identify_early: as `LoginGate.identify`, None where it does not take long.
        recognize: as `layer.recognize`, None where only another service knows.
        sessions: None where the browser itself asks for passwords, or none are needed.
    """

    authenticator: Authenticator
    layer: Layer | None = None
    identify_early: Callable[[WSGIEnvironment], Awaitable[Identity]] | None = None
    read_user_file_problem: Callable[[], str | None] | None = None
    recognize: Callable[[WSGIEnvironment], Identity] | None = None
    sessions: Sessions | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the daemon and a foreign WSGI server both need."""

    settings: ApiSettings
    store: Store
    notifier: NotificationSender | None
    agents: AgentCalls
    broker: Broker
    counters: ApiCounters
    access: Access


def build_api(conf: cfg.ConfigOpts) -> "tuple[ApiService, Server]":
    """Build the service; nothing is connected or started.

    Raises:
        ConfigError: a value is invalid; the message names it.
    """
    # Not under foreign WSGI servers, which run no service.
    from nodetracker.api.service import ApiService
    from nodetracker.usecases.watch import Watcher

    database = make_outage_log()
    parts = _build_parts(conf, database)
    membership = Membership(
        parts.store, parts.settings.host, API_BINARY, "", version("nodetracker"),
        read_incarnation(str(uuid.uuid4()), parts.settings.report_interval), DatabaseClock(),
    )  # fmt: skip

    def read_status() -> ApiStatus:
        return ApiStatus(
            database_error=database.error,
            heartbeat_age_seconds=membership.age_seconds,
            has_broker=parts.broker.is_configured,
            broker_error=_find_broker_error(parts),
        )

    server = _build_server(conf, parts, read_status)
    watcher = Watcher(parts.settings.host, API_BINARY, parts.settings.service_down_time)
    service = ApiService(
        parts.settings, server, parts.store, membership, parts.notifier, database,
        build_unserved_removals(conf, parts.store),
        build_purge(conf, parts.store, watcher),
        build_tolerance_watch(conf, parts.store, watcher),
    )  # fmt: skip
    return service, server


def build_wsgi_application(conf: cfg.ConfigOpts) -> WSGIApplication:
    """Build the application for a foreign WSGI server; nothing is connected or started.

    Raises:
        ConfigError: as `build_api`.
    """
    parts = _build_parts(conf, make_outage_log())

    def read_status() -> ApiStatus:
        return ApiStatus(
            database_error=parts.counters.store_errors.error,
            has_heartbeat=False,
            has_broker=parts.broker.is_configured,
            broker_error=_find_broker_error(parts),
        )

    return _build_application(conf, parts, read_status, _make_limits())[0]


def build_own_server(
    conf: cfg.ConfigOpts,
    store: Store,
    agents: AgentDirectory,
    read_agent: Callable[[], AgentStatus],
) -> Server:
    """Build the server of an agent's own process, over its store.

    Args:
        read_agent: returns the agent's status.

    Raises:
        ConfigError: as `build_api`.
    """
    settings, broker, access = _prepare(conf)
    parts = _Parts(
        settings, store, None, AgentCalls(agents), broker, _make_counters(settings), access,
    )  # fmt: skip

    def read_status() -> ApiStatus:
        agent = read_agent()
        return ApiStatus(
            database_error=agent.database_error,
            heartbeat_age_seconds=agent.heartbeat_age_seconds,
            has_broker=agent.has_broker,
            broker_error=agent.broker_error,
        )

    return _build_server(conf, parts, read_status)


def build_api_settings(conf: cfg.ConfigOpts) -> ApiSettings:
    """Return the settings of the service, with every value checked.

    Raises:
        ConfigError: values are malformed or contradict others; it names all of them.
    """
    group, problems = conf.api, Problems()
    problems.collect(check_conductor_values, conf)
    problems.collect(check_tls, API.name, group.cert_file, group.key_file)
    if not conf.conductor.use_local:
        problems.add(
            "[conductor] use_local: false, but nodetracker-api needs the database itself: "
            "conductors serve agents; set [database] connection and remove use_local here"
        )
    problems.raise_any()
    return build_from_options(
        ApiSettings,
        group,
        conf.compute,
        conf,
        option_group="api",
        host=read_host_name(conf),
        insecure_power_actions=accepts_insecure_power_actions(conf),
    )


def accepts_insecure_power_actions(conf: cfg.ConfigOpts) -> bool:
    """Return whether GETs of power actions are accepted without TLS."""
    return bool(conf.api.auth_strategy != "http_basic" or conf.api.allow_insecure_power_actions)


def _build_parts(conf: cfg.ConfigOpts, database: OutageLog) -> _Parts:
    settings, broker, access = _prepare(conf)
    notifier, counters = broker.make_notifier(f"api:{settings.host}"), _make_counters(settings)
    store = build_sql_store(
        conf,
        observers=broker.make_observers(notifier, wakes_agents=True),
        watch=watch_calls(database, counters.store_errors.clear),
        pool={
            "max_pool_size": settings.threads + _SPARE_CONNECTIONS,
            "max_overflow": 0,
            "pool_timeout": POOL_SECONDS,
        },
    )
    agents = AgentCalls(build_agents(conf, store, "api", broker))
    return _Parts(settings, store, notifier, agents, broker, counters, access)


def _prepare(conf: cfg.ConfigOpts) -> tuple[ApiSettings, Broker, Access]:
    """Build what the configuration alone decides.

    Raises:
        ConfigError: values are invalid; it names all of them.
    """
    problems, broker = Problems(), Broker(conf)
    settings = problems.collect(build_api_settings, conf)
    problems.collect(broker.check)
    problems.collect(check_database, conf)
    access = problems.collect(_build_own_access, conf)
    for check in (build_admission_policy, build_scheduler_settings, check_placement):
        problems.collect(check, conf)
    problems.raise_any()
    return settings, broker, access


def _build_own_access(conf: cfg.ConfigOpts) -> Access:
    routes = list_routes(conf.api.open_metrics)
    return build_access(conf, list_open_paths(routes), _is_behind_proxy(conf))


def _make_counters(settings: ApiSettings) -> ApiCounters:
    return ApiCounters(
        RequestCounter(), ClaimCounter(), StoreErrorCounter(settings.service_down_time)
    )


def _find_broker_error(parts: _Parts) -> str | None:
    """Return why the broker cannot be used, as far as this process has tried."""
    notifications_error = None if parts.notifier is None else parts.notifier.error
    return notifications_error or parts.broker.wake_error


def _make_limits() -> OutageLog:
    return OutageLog("The REST service", ExhaustedError, LOG, settle_seconds=SETTLE_SECONDS)


def _build_server(
    conf: cfg.ConfigOpts, parts: _Parts, read_process: Callable[[], ApiStatus]
) -> Server:
    limits = _make_limits()
    application, gate = _build_application(conf, parts, read_process, limits)
    return Server(
        application,
        parts.settings,
        gate=gate,
        render_refusal=render_refusal,
        on_exhausted=partial(limits.note_failure, REQUESTS),
    )


def _build_application(
    conf: cfg.ConfigOpts,
    parts: _Parts,
    read_process: Callable[[], ApiStatus],
    limits: OutageLog,
) -> tuple[WSGIApplication, Gate]:
    """Build the application, and the gate in front of its threads.

    Args:
        read_process: returns what this process knows of its database, heartbeats and broker.
        limits: logs when this process is at a limit of its resources.
    """
    settings, store = parts.settings, parts.store
    routes, has_proxy = list_routes(settings.open_metrics), _is_behind_proxy(conf)
    access = parts.access
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

    scheduling = build_scheduler_settings(conf)
    backend = Backend(
        version=version("nodetracker"),
        settings=settings,
        store=store,
        agents=parts.agents,
        policy=policy,
        scheduler=Scheduler(store, policy, scheduling),
        planner=HostPlanner(store, policy, scheduling),
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
        placement=build_placement_healer(conf, store) if conf.placement.enabled else None,
    )
    counting: Layer = partial(count_requests, counter=parts.counters.requests)
    # Before the library's layer, which takes whatever a client says for its address.
    noting: Layer = partial(add_client_address, has_proxy=has_proxy)
    proxies: tuple[Layer, ...] = (proxy_layer(conf),) if has_proxy else ()
    limiting: Layer = partial(answer_exhaustion, limits=limits)
    layers = (counting, noting, *proxies, limiting, request_id_layer, access.layer)
    return build_application(backend, routes, layers), access.gate


def _is_behind_proxy(conf: cfg.ConfigOpts) -> bool:
    """Return the library's option without the library, which `proxy_layer` imports.

    Raises:
        ConfigError: its value is invalid.
    """
    conf.register_opt(PROXY_HEADERS, group=PROXY_GROUP)
    return bool(read_value(conf, PROXY_GROUP, PROXY_HEADERS.name))


def build_access(
    conf: cfg.ConfigOpts, open_paths: frozenset[str], has_proxy: bool = False
) -> Access:
    """Build what ``[api] auth_strategy`` and the policy files say.

    Args:
        open_paths: at which credentials are ignored.
        has_proxy: whether proxies say the client's address.

    Raises:
        ConfigError: a value or a policy file is invalid, or a library is missing; it names
            everything.
    """
    failures, problems = LoginFailures(), Problems()
    problems.collect(_check_exposure, conf)
    strategy = problems.collect(_build_strategy, conf, failures)
    enforcer = problems.collect(make_enforcer, conf)
    problems.raise_any()

    def protect(application: WSGIApplication) -> WSGIApplication:
        authenticated = authenticate(application, strategy.authenticator, failures)
        if strategy.layer is not None:
            authenticated = strategy.layer(authenticated)
        recognized = application
        if strategy.recognize is not None:
            recognized = recognize(application, strategy.recognize)
        layered = leave_open(recognized, authenticated, open_paths)
        if strategy.sessions is not None:
            layered = accept_session_cookie(layered, conf.api.public_url)
        return drop_identity_headers(layered)

    def put_gate(application: Application) -> Application:
        if conf.api.auth_strategy == "noauth":
            return application
        return LoginGate(application, strategy.identify_early, open_paths, has_proxy)

    authorizer = PolicyAuthorizer(enforcer)
    problem, sessions = strategy.read_user_file_problem, strategy.sessions
    return Access(protect, put_gate, authorizer, failures, problem, sessions)


def _check_exposure(conf: cfg.ConfigOpts) -> None:
    strategy, listen = conf.api.auth_strategy, conf.api.listen
    if is_loopback(listen):
        return
    if strategy == "noauth":
        raise ConfigError(
            f"[api] auth_strategy: noauth serves on a loopback address only, and listen is {listen}"
        )
    if strategy == "http_basic" and not conf.api.cert_file:
        LOG.warning(_UNPROTECTED, listen)


def _build_strategy(conf: cfg.ConfigOpts, failures: LoginFailures) -> _Strategy:
    """Build the configured strategy, importing only its own libraries."""
    match conf.api.auth_strategy:
        case "noauth":
            from nodetracker.api.auth.addresses import NoauthAuthenticator

            noauth = NoauthAuthenticator(conf.api.public_url)
            return _Strategy(noauth, recognize=noauth.identify)
        case "keystone":
            try:
                from nodetracker.api.auth.keystone import (
                    KeystoneAuthenticator,
                    KeystoneSessions,
                    validate_tokens,
                )
            except ImportError as error:
                raise ConfigError(
                    "[api] auth_strategy: keystone needs the library keystonemiddleware: "
                    "pip install 'nodetracker[keystone]'"
                ) from error
            return _Strategy(
                KeystoneAuthenticator(),
                lambda application: validate_tokens(application, conf),
                sessions=KeystoneSessions(conf, failures),
            )
        case _:
            from nodetracker.api.auth.http_basic import HttpBasicAuthenticator

            path = Path(conf.api.http_basic_auth_user_file)
            basic = HttpBasicAuthenticator(path, conf.api.http_basic_admins)
            return _Strategy(
                basic,
                identify_early=basic.identify_early,
                read_user_file_problem=lambda: basic.problem,
                recognize=basic.recognize,
            )
