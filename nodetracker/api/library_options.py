"""List the configuration options of the libraries that the API uses."""

from collections.abc import Sequence
from typing import Any

from oslo_middleware import opts as middleware
from oslo_policy import opts as policy

KEYSTONE_GROUP = "keystone_authtoken"

_METHODS = ("password", "v3password", "v3applicationcredential", "v3token")
"""Those by which services authenticate; loading all logs an error for each that lacks libraries."""


KEYSTONE_TIMEOUT_SECONDS = 10
"""Default of ``http_connect_timeout``.

Without one a Keystone that hangs would keep the threads of all requests with tokens.
"""


def set_keystone_defaults() -> None:
    """Set nodetracker's defaults of the middleware's options.

    Raises:
        ImportError: it is not installed.
    """
    from keystonemiddleware.auth_token import _opts  # what `list_opts` copies

    for option in _opts._OPTS:
        if option.dest == "http_connect_timeout":
            option.default = KEYSTONE_TIMEOUT_SECONDS


def list_options() -> list[tuple[str, Sequence[Any]]]:
    """Return (group, options) of the libraries; Keystone's only if they are installed."""
    own: list[Any] = [*policy.list_opts(), *middleware.list_opts_http_proxy_to_wsgi()]
    try:
        return [*own, *_list_keystone_options()]
    except ImportError:
        return own


def _list_keystone_options() -> list[tuple[str, Sequence[Any]]]:
    """Return the middleware's options, and those of methods by which it authenticates."""
    from keystoneauth1 import loading
    from keystonemiddleware.auth_token import list_opts

    set_keystone_defaults()
    methods = [loading.get_plugin_loader(name) for name in _METHODS]
    return [*list_opts(), *((KEYSTONE_GROUP, method.get_options()) for method in methods)]
