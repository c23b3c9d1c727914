"""Addresses of clients, and noauth: every process of this machine may administer."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.context import CLIENT_ADDRESS, Identity, make_admin
from nodetracker.model.errors import ForbiddenError
from nodetracker.web.listeners import is_loopback

USER = "noauth"
"""The administrator of noauth."""

_BRACKETS = re.compile(r"\[([^][]*)\](?::[0-9]*)?")
_FORWARDING = ("HTTP_FORWARDED", "HTTP_X_REAL_IP")


def split_port(host: str) -> str:
    """Return the name or address of a ``Host`` header, without the port, in lower case.

    >>> split_port("Node-1:8774"), split_port("[::1]:8774"), split_port("::1")
    ('node-1', '::1', '::1')
    >>> split_port("[::1].example.org")  # is neither
    '[::1].example.org'
    """
    if match := _BRACKETS.fullmatch(host):
        return match[1].lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and ":" not in name else host).lower()


def find_client_address(environ: Mapping[str, Any], has_proxy: bool) -> str:
    """Return the address from which a request comes, "-" over a Unix socket.

    Args:
        has_proxy: the nearest proxy says it: the last entry of ``Forwarded`` or
            ``X-Forwarded-For``, as clients may have sent the ones before.

    >>> find_client_address({"HTTP_X_FORWARDED_FOR": "::1, 192.0.2.7:80"}, has_proxy=True)
    '192.0.2.7'
    """
    peer: str = environ.get("REMOTE_ADDR") or "-"
    if not has_proxy:
        return peer
    last = environ.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2]
    if "HTTP_FORWARDED" in environ:
        pairs = environ["HTTP_FORWARDED"].rpartition(",")[2].split(";")
        named = dict(pair.strip().lower().partition("=")[::2] for pair in pairs)
        last = named.get("for", "").strip('"')
    try:
        return str(ip_address(split_port(last.strip()).partition("%")[0]))
    except ValueError:
        return peer


def add_client_address(application: WSGIApplication, has_proxy: bool) -> WSGIApplication:
    """Return an application whose requests carry the address of their client.

    Args:
        has_proxy: whether proxies say it.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        environ[CLIENT_ADDRESS] = find_client_address(environ, has_proxy)
        return application(environ, start)

    return answer


class NoauthAuthenticator:
    """Accepts requests over loopback that name this machine.

    A page whose own name was made to resolve to 127.0.0.1 (DNS rebinding) sends that
    name as ``Host``, and any other header. A proxy's clients may be anywhere.

    Args:
        public_url: its host is accepted in addition to those of loopback.
    """

    def __init__(self, public_url: str | None = None) -> None:
        self._public_host = urlsplit(public_url or "").hostname

    def identify(self, environ: WSGIEnvironment) -> Identity:
        """Return an administrator; raises as `Authenticator.identify`."""
        for key in environ:
            if key.startswith("HTTP_X_FORWARDED") or key in _FORWARDING:
                name = key.removeprefix("HTTP_").replace("_", "-").title()
                raise ForbiddenError(f"auth_strategy noauth serves no proxies (header {name})")
        address = environ.get("REMOTE_ADDR")
        if address and not is_loopback(address):  # has none over a Unix socket
            raise ForbiddenError("auth_strategy noauth serves requests over loopback only")
        host = split_port(environ.get("HTTP_HOST", ""))
        if not is_loopback(host) and (not host or host != self._public_host):
            raise ForbiddenError(
                f"Host {host!r} is neither a name of loopback nor that of [api] public_url"
            )
        return make_admin(USER)
