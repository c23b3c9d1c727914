"""Authenticate by Keystone's tokens; imported only when it is configured, as are its libraries."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException, Unauthorized
from keystoneauth1.identity import Password
from keystoneauth1.session import Session
from keystonemiddleware.auth_token import AuthProtocol, list_opts

from nodetracker.api.auth.layer import LoginFailures
from nodetracker.api.auth.login_queue import Attempt, LoginQueue
from nodetracker.api.context import Identity, Login
from nodetracker.api.library_options import KEYSTONE_GROUP, set_keystone_defaults
from nodetracker.model.errors import AuthenticationError, ConfigError

LOG = logging.getLogger(__name__)

PROJECT = "nodetracker"
_CONFIRMED = "Confirmed"
_ALL_SYSTEM = "all"


def register_options(conf: Any) -> None:
    """Register the middleware's options, which it also does itself when it is built."""
    set_keystone_defaults()
    for group, options in list_opts():
        conf.register_opts(options, group)


def validate_tokens(application: WSGIApplication, conf: Any) -> WSGIApplication:
    """Return an application whose requests have headers of what their token confers.

    Requests without a valid token pass, as some pages need none. The middleware adds
    ``WWW-Authenticate`` to an answer 401.

    Args:
        conf: oslo.config's object with the group ``keystone_authtoken``.

    Raises:
        ConfigError: an option without which every request fails is not set.
    """
    settings = {
        "oslo_config_config": conf,
        "oslo_config_project": PROJECT,
        "delay_auth_decision": True,
    }
    register_options(conf)
    protected: WSGIApplication = AuthProtocol(application, settings)
    group = conf.keystone_authtoken
    if not group.auth_type and not group.auth_section:
        raise ConfigError("[keystone_authtoken] auth_type: is not set")
    if not group.www_authenticate_uri:
        raise ConfigError("[keystone_authtoken] www_authenticate_uri: is not set")
    return _without_exceptions(protected, application)


def _without_exceptions(
    protected: WSGIApplication, application: WSGIApplication
) -> WSGIApplication:
    """Return an application for which a token that cannot be validated is none.

    The middleware raises what it does not expect (seen with 13.0: an endpoint that the
    catalogue lacks), before it calls the application.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        try:
            return protected(environ, start)
        except ClientException as error:
            problem = str(error)
        LOG.error("Keystone: cannot validate a token, check [keystone_authtoken]: %s", problem)
        return application(environ, start)

    return answer


class KeystoneAuthenticator:
    """Reads the headers that `validate_tokens` sets."""

    def identify(self, environ: WSGIEnvironment) -> Identity:
        """Return the token's user; raises as `Authenticator.identify`."""
        if environ.get("HTTP_X_IDENTITY_STATUS") != _CONFIRMED:
            raise AuthenticationError("a valid token is required")
        roles = environ.get("HTTP_X_ROLES", "").split(",")
        return Identity(
            user_id=environ["HTTP_X_USER_ID"],
            project_id=environ.get("HTTP_X_PROJECT_ID") or None,
            roles=frozenset(role.strip() for role in roles if role.strip()),
            is_system=environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE") == _ALL_SYSTEM,
            user_name=environ.get("HTTP_X_USER_NAME"),
        )


class KeystoneSessions:
    """Opens and closes sessions; each is a token of Keystone.

    Args:
        conf: oslo.config's object with the group ``keystone_authtoken``.
        failures: counts logins that Keystone refuses.
    """

    def __init__(self, conf: Any, failures: LoginFailures) -> None:
        register_options(conf)
        self._group = conf[KEYSTONE_GROUP]
        service = loading.load_auth_from_conf_options(conf, KEYSTONE_GROUP)
        self._url = getattr(service, "auth_url", None) or self._group.www_authenticate_uri
        self._challenge = f'Keystone uri="{self._group.www_authenticate_uri}"'
        self._failures = failures
        self._queue = LoginQueue()

    def open(self, login: Login, address: str) -> str:
        """Return a new token.

        Raises:
            AuthenticationError: Keystone refuses the login, or does not answer.
            ThrottledError: too many logins are being checked, or failed.
        """
        user = f"{login.user}@{login.domain}"
        token = self._queue.check_in_thread(Attempt(user, address, partial(self._fetch, login)))
        if not token:
            self._failures.add(user, address)
            raise AuthenticationError("wrong user, domain, project or password", self._challenge)
        return token

    def _fetch(self, login: Login) -> str:
        """Return a new token, "" if Keystone refuses the login."""
        project, scope = login.project, {"system_scope": _ALL_SYSTEM}
        if project is not None:
            scope = {"project_name": project, "project_domain_name": login.domain}
        user = {"username": login.user, "user_domain_name": login.domain}
        try:
            method = Password(self._url, password=login.password, **user, **scope)
            token: str = method.get_token(self._connect())
            return token
        except Unauthorized:
            return ""
        except ClientException as error:
            problem = str(error)
        LOG.error("Keystone: login failed: %s", problem)
        raise AuthenticationError("Keystone is unavailable", self._challenge)

    def close(self, token: str) -> None:
        """Revoke a token; one that Keystone does not revoke ends when it expires."""
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        url = f"{self._url.rstrip('/').removesuffix('/v3')}/v3/auth/tokens"
        problem: str | None = None
        try:
            self._connect().delete(url, headers=headers, authenticated=False, log=False)
        except ClientException as error:
            problem = str(error)
        if problem is not None:
            LOG.warning("Keystone: a token was not revoked: %s", problem)

    def _connect(self) -> Session:
        group = self._group
        certificate = (group.certfile, group.keyfile) if group.keyfile else group.certfile
        return Session(
            verify=not group.insecure and (group.cafile or True),
            cert=certificate,
            timeout=group.http_connect_timeout,
        )
