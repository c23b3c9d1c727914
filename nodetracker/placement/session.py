"""Send requests to placement with keystoneauth, and limit how long an answer may take.

The only module that imports keystoneauth for placement. The timeout of a socket
only limits the time without a byte: a server that sends one within each timeout
would be waited for without end.
"""

import http.client
import io
import socket
import time
from collections.abc import Sequence
from http.client import IncompleteRead
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException, HttpError
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.poolmanager import PoolManager, ProxyManager
from urllib3.util import parse_url

from nodetracker.model.errors import (
    ConfigError,
    PlacementTimeoutError,
    PlacementUnavailableError,
    list_causes,
)
from nodetracker.placement.answers import MICROVERSION, Answer

_TIMEOUTS = 2
"""The limit, in timeouts of the request."""


def limit_answers(session: Any) -> None:
    """Limit the answers to a session's requests; later ones raise a timeout of urllib3."""
    for adapter in session.adapters.values():
        _limit(adapter.poolmanager)
        adapter.proxy_manager = _ProxyManagers()


def _limit(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}


class _ProxyManagers(dict[str, PoolManager]):
    """Proxy -> its manager, which requests adds with the first request by that proxy.

    One of SOCKS has connections of its own, which are not limited.
    """

    def __setitem__(self, proxy: str, manager: PoolManager) -> None:
        if type(manager) is ProxyManager:
            _limit(manager)
        super().__setitem__(proxy, manager)


class _LimitedSocket(io.RawIOBase):
    """The bytes of one answer."""

    def __init__(self, raw: io.RawIOBase, timeout: float | None) -> None:
        self._raw = raw
        self._deadline = time.monotonic() + _TIMEOUTS * (timeout or float("inf"))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("timed out")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_LimitedSocket(self.fp.detach(), sock.gettimeout()))


class _Connection(HTTPConnection):
    response_class = _LimitedResponse


class _TLSConnection(HTTPSConnection):
    response_class = _LimitedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


GROUP = "placement"
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_METHODS = ("password", "v3applicationcredential", "http_basic", "none", "admin_token")
"""Ways to authenticate that are documented; any other plugin of keystoneauth works too."""

_SERVICE_TYPE = "placement"
_OWN = frozenset({"timeout", "collect_timing", "split_loggers"})
_TOO_LATE = "no answer in time"
_CHUNK_BYTES = 256 * 1024
_HEADERS = {"OpenStack-API-Version": f"placement {MICROVERSION}", "Accept": "application/json"}


def _check_urls(group: Any) -> None:
    """Check the options that are URLs."""
    for name in ("auth_url", "endpoint", "endpoint_override"):
        value = getattr(group, name, None)
        if value and not _is_url(value):
            shown = value.rpartition("@")[2]  # without a password
            raise ConfigError(
                f"[{GROUP}] {name}: invalid value {shown!r}: expected a URL of http or https"
            )


def _is_url(text: str) -> bool:
    try:
        parts = parse_url(text)
    except LocationParseError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)


def _find_url(error: BaseException) -> str:
    """Return the URL that was requested when an error occurred, Keystone's too; "" = unknown."""
    for cause in list_causes(error):
        url = getattr(cause, "url", None) or getattr(getattr(cause, "request", None), "url", None)
        if isinstance(url, str) and "://" in url:  # urllib3's errors have paths
            return _without_credentials(url)
    return ""


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _explain(error: BaseException) -> str:
    """Return an error on one line; the same cause always has the same text."""
    for seen in list_causes(error):
        if isinstance(seen, HttpError):
            return f"answered {seen.http_status}: {' '.join(str(seen.message).split())}"
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        if isinstance(seen, TimeoutError) or "timed out" in str(seen):
            return _TOO_LATE
        if isinstance(seen, (ConnectionError, IncompleteRead)):
            return "the connection was lost"
    return " ".join(str(error).split()) or type(error).__name__


def list_options() -> Sequence[Any]:
    """Return keystoneauth's options of the group: session, adapter and the documented methods."""
    listed = [*_list_registered(), *loading.get_auth_common_conf_options()]
    for method in _METHODS:
        listed += loading.get_auth_plugin_conf_options(method)
    by_name = {option.dest: option for option in reversed(listed)}
    return [by_name[name] for name in sorted(by_name)]


def _list_registered() -> list[Any]:
    session = [o for o in loading.get_session_conf_options() if o.dest not in _OWN]
    adapter = loading.get_adapter_conf_options(include_deprecated=False)
    for option in adapter:
        if option.dest == "valid_interfaces":
            option.default = ["internal", "public"]
    return [*session, *adapter]


class PlacementSession:
    """Sends single requests; safe for several threads.

    keystoneauth renews a token that placement rejects, once a request.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def request(self, method: str, path: str, body: object | None = None) -> Answer:
        """Send a request; whatever status the answer has, it is returned.

        Raises:
            PlacementTimeoutError: no answer in time.
            PlacementUnavailableError: no answer, or too large an answer.
        """
        what = f"{method} {path}"
        arguments = {} if body is None else {"json": body}
        try:
            response = self._adapter.request(
                path, method, headers=_HEADERS, raise_exc=False, log=False, stream=True, **arguments
            )
            try:
                url = _without_credentials(response.url)
                what = f"{method} {url}"
                return Answer(response.status_code, self._read(what, response), url)
            finally:
                response.close()
        except (ClientException, HTTPError, OSError, TypeError) as error:  # OSError: requests' own
            reason, url = _explain(error), _find_url(error)
            kind = PlacementTimeoutError if reason == _TOO_LATE else PlacementUnavailableError
            if url.endswith(path):
                raise kind(f"{method} {url}", reason) from error
            raise kind(what, f"{url}: {reason}" if url else reason) from error

    @staticmethod
    def _read(what: str, response: Any) -> bytes:
        chunks, size = [], 0
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise PlacementUnavailableError(
                    what, f"the answer has more than {MAX_ANSWER_BYTES} bytes"
                )
        return b"".join(chunks)


def build_session(conf: Any) -> PlacementSession:
    """Build a session from the group ``[placement]``; nothing is connected.

    Args:
        conf: oslo.config's object, on which keystoneauth's options are registered.

    Raises:
        ConfigError: ``auth_type`` is not set or unknown, or an option is missing or invalid.
    """
    conf.register_opts(_list_registered(), group=GROUP)
    loading.register_auth_conf_options(conf, GROUP)
    group = conf[GROUP]
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            raise ConfigError(f"[{GROUP}] auth_type: is not set")
        _check_urls(group)
        # Without auth: when a Keystone rejects the discovery of its versions, keystoneauth 5.18
        # would authenticate that request, too, and wait for itself without end.
        session = loading.session.Session().load_from_options(
            insecure=group.insecure,
            cacert=group.cafile,
            cert=group.certfile,
            key=group.keyfile,
            timeout=group.timeout,
        )
        limit_answers(session.session)
        adapter = loading.load_adapter_from_conf_options(
            conf,
            GROUP,
            session=session,
            auth=auth,
            service_type=group.service_type or _SERVICE_TYPE,
        )
    except (ClientException, TypeError, ValueError) as error:
        raise ConfigError(f"[{GROUP}] {_explain(error)}") from error
    return PlacementSession(adapter)
