"""Let every process of this machine administer, but no proxy and no page of another site."""

from urllib.parse import urlsplit
from wsgiref.types import WSGIEnvironment

from nodetracker.api.auth.hosts import is_loopback, split_port
from nodetracker.api.auth.identity import make_admin
from nodetracker.api.context import Identity
from nodetracker.model.errors import ForbiddenError

USER = "noauth"

_FORWARDING = ("HTTP_FORWARDED", "HTTP_X_REAL_IP")


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
