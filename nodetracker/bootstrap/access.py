"""Build authentication and authorization of the REST API from the configuration."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from wsgiref.types import WSGIApplication, WSGIEnvironment

from oslo_config import cfg

from nodetracker.api.auth.addresses import is_loopback
from nodetracker.api.auth.browser import accept_session_cookie
from nodetracker.api.auth.layer import (
    Application,
    LoginFailures,
    LoginGate,
    authenticate,
    drop_identity_headers,
    leave_open,
)
from nodetracker.api.call import Sessions
from nodetracker.api.context import Authenticator, Identity
from nodetracker.api.layers import Layer
from nodetracker.api.policies import PolicyAuthorizer, make_enforcer
from nodetracker.model.errors import ConfigError

LOG = logging.getLogger(__name__)

_UNPROTECTED = (
    "[api] listen = %s is not a loopback address and cert_file is not set: passwords are sent "
    "unencrypted unless a proxy adds TLS"
)


Gate = Callable[[Application], Application]


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
        sessions: None where the browser itself asks for passwords, or none are needed.
    """

    authenticator: Authenticator
    layer: Layer | None = None
    identify_early: Callable[[WSGIEnvironment], Awaitable[Identity]] | None = None
    read_user_file_problem: Callable[[], str | None] | None = None
    sessions: Sessions | None = None


def build_access(
    conf: cfg.ConfigOpts, open_paths: frozenset[str], has_proxy: bool = False
) -> Access:
    """Build what ``[api] auth_strategy`` and the policy files say.

    Args:
        open_paths: at which credentials are ignored.
        has_proxy: whether proxies say the client's address.

    Raises:
        ConfigError: a value or a policy file is invalid, or a library is missing.
    """
    _check_exposure(conf)
    failures = LoginFailures()
    strategy = _build_strategy(conf, failures)

    def protect(application: WSGIApplication) -> WSGIApplication:
        authenticated = authenticate(application, strategy.authenticator, failures)
        if strategy.layer is not None:
            authenticated = strategy.layer(authenticated)
        layered = leave_open(application, authenticated, open_paths)
        if strategy.sessions is not None:
            layered = accept_session_cookie(layered, conf.api.public_url)
        return drop_identity_headers(layered)

    def put_gate(application: Application) -> Application:
        identify = strategy.identify_early
        if identify is None:
            return application
        return LoginGate(application, identify, open_paths, has_proxy)

    authorizer = PolicyAuthorizer(make_enforcer(conf))
    problem, sessions = strategy.read_user_file_problem, strategy.sessions
    return Access(protect, put_gate, authorizer, failures, problem, sessions)


def accepts_insecure_power_actions(conf: cfg.ConfigOpts) -> bool:
    """Return whether GETs of power actions are accepted without TLS."""
    return bool(conf.api.auth_strategy != "http_basic" or conf.api.allow_insecure_power_actions)


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

            return _Strategy(NoauthAuthenticator(conf.api.public_url))
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
            )
