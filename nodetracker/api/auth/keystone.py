"""Authenticate tokens with keystonemiddleware; imported only when it is configured."""

import logging
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from keystoneauth1.exceptions import ClientException
from keystonemiddleware.auth_token import AuthProtocol, list_opts

from nodetracker.api.context import Identity
from nodetracker.api.library_options import set_keystone_defaults
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
