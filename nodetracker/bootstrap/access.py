"""Build authentication and authorization of the REST API from the configuration."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from wsgiref.types import WSGIApplication

from oslo_config import cfg

from nodetracker.api.auth.authorizer import PolicyAuthorizer, make_enforcer
from nodetracker.api.auth.headers import drop_identity_headers
from nodetracker.api.auth.hosts import is_loopback
from nodetracker.api.auth.identity import Authenticator
from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.auth.session_cookie import accept_session_cookie
from nodetracker.api.call import Sessions
from nodetracker.api.layers import Layer
from nodetracker.errors import ConfigError

LOG = logging.getLogger(__name__)

_UNPROTECTED = (
    "[api] listen = %s is not a loopback address and cert_file is not set: passwords are sent "
    "unencrypted unless a proxy adds TLS"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the API, and for what.

    Attributes:
        layer: makes requests carry the identity of their credentials.
        failures: requests with wrong credentials.
        read_user_file_problem: returns why nobody can log in; None without a user file.
        sessions: opens the sessions of browsers, None if the strategy has none.
    """

    layer: Layer
    authorizer: PolicyAuthorizer
    failures: LoginFailures
    read_user_file_problem: Callable[[], str | None] | None
    sessions: Sessions | None


@dataclass(frozen=True, slots=True)
class _Strategy:
    """A strategy of authentication, with the layer that it needs around it.

    Attributes:
        sessions: None where the browser itself asks for passwords, or none are needed.
    """

    authenticator: Authenticator
    layer: Layer
    read_user_file_problem: Callable[[], str | None] | None = None
    sessions: Sessions | None = None


def build_access(conf: cfg.ConfigOpts) -> Access:
    """Build what ``[api] auth_strategy`` and the policy files say.

    Raises:
        ConfigError: a value or a policy file is invalid, or a library is missing.
    """
    _check_exposure(conf)
    failures = LoginFailures()
    strategy = _build_strategy(conf, failures)

    def protect(application: WSGIApplication) -> WSGIApplication:
        authenticated = authenticate(application, strategy.authenticator, failures)
        return drop_identity_headers(strategy.layer(authenticated))

    authorizer = PolicyAuthorizer(make_enforcer(conf))
    problem, sessions = strategy.read_user_file_problem, strategy.sessions
    return Access(protect, authorizer, failures, problem, sessions)


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
            from nodetracker.api.auth.noauth import NoauthAuthenticator

            return _Strategy(NoauthAuthenticator(conf.api.public_url), _no_layer)
        case "keystone":
            try:
                from nodetracker.api.auth.keystone import KeystoneAuthenticator, validate_tokens
                from nodetracker.api.auth.keystone_sessions import KeystoneSessions
            except ImportError as error:
                raise ConfigError(
                    "[api] auth_strategy: keystone needs the library keystonemiddleware: "
                    "pip install 'nodetracker[keystone]'"
                ) from error
            return _Strategy(
                KeystoneAuthenticator(),
                lambda application: accept_session_cookie(validate_tokens(application, conf)),
                sessions=KeystoneSessions(conf, failures),
            )
        case _:
            from nodetracker.api.auth.http_basic import HttpBasicAuthenticator

            path = Path(conf.api.http_basic_auth_user_file)
            basic = HttpBasicAuthenticator(path, conf.api.http_basic_admins)
            return _Strategy(basic, _no_layer, lambda: basic.problem)


def _no_layer(application: WSGIApplication) -> WSGIApplication:
    return application
