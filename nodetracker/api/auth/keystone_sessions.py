"""Exchange names and passwords for tokens of Keystone, for browsers."""

import logging
from functools import partial
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException, Unauthorized
from keystoneauth1.identity import Password
from keystoneauth1.session import Session

from nodetracker.api.auth.keystone import register_options
from nodetracker.api.auth.layer import LoginFailures
from nodetracker.api.auth.turns import Attempt, Turns
from nodetracker.api.context import Login
from nodetracker.api.library_options import KEYSTONE_GROUP
from nodetracker.model.errors import AuthenticationError

LOG = logging.getLogger(__name__)

_ALL_SYSTEM = "all"


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
        self._turns = Turns()

    def open(self, login: Login, address: str) -> str:
        """Return a new token.

        Raises:
            AuthenticationError: Keystone refuses the login, or does not answer.
            ThrottledError: too many logins are being checked, or failed.
        """
        user = f"{login.user}@{login.domain}"
        token = self._turns.take_in_thread(Attempt(user, address, partial(self._fetch, login)))
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
