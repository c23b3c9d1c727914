"""Query a container engine over Docker's API: connect on demand, bound each call, reconnect."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any, TypeVar

import docker
import requests
import urllib3
from docker.types import CancellableStream

from nodetracker.model.errors import (
    DriverUnavailableError,
    HostDataError,
    NotFoundError,
    list_causes,
)

_PIECE_BYTES = 2**16
"""Largest piece of a stream; a smaller chunk of the engine's is a piece as soon as it arrives."""


class EventStream:
    """Stream of the engine's events, in pieces of JSON text.

    Iteration ends when the engine closes the stream or when no event arrives
    for a while; `was_idle` is True in the latter case.

    Attributes:
        opened_at: time at which it was opened, by the engine's clock in whole
            seconds since 1970, rounded down; None if the engine does not send it.
    """

    def __init__(self, response: requests.Response) -> None:
        self._response = response
        self._cancellable = CancellableStream(iter(()), response)
        self.was_idle = False
        date = parsedate_tz(response.headers.get("Date") or "")
        self.opened_at = None if date is None else int(mktime_tz(date))

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_content(_PIECE_BYTES)
        except requests.exceptions.ConnectionError as error:
            cause = error.args[0] if error.args else None
            self.was_idle = isinstance(cause, urllib3.exceptions.ReadTimeoutError)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
            pass  # the daemon went away; the caller reconnects
        except AttributeError:
            pass  # closed from another thread while a piece was read
        finally:
            self._response.close()

    def close(self) -> None:
        """Close the stream, from any thread; a waiting reader returns immediately."""
        with contextlib.suppress(OSError, AttributeError):
            self._cancellable.close()


MAX_ANSWER_BYTES = 64 * 2**20
"""Of one answer; a list of 10,000 containers with their labels has about half of that."""


class _LimitedBody:
    """The body of an answer, of which at most `MAX_ANSWER_BYTES` are read.

    Args:
        raw: the body, see `requests.Response.raw`.
    """

    def __init__(self, raw: Any, source: str) -> None:
        self._raw = raw
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        size = 0
        for part in self._raw.stream(*arguments, **options):
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                self._raw.close()
                raise HostDataError(
                    self._source, f"answered with more than {MAX_ANSWER_BYTES} bytes"
                )
            yield part


MIN_API_VERSION = (1, 40)
_NEGOTIATION_API_VERSION = "1.40"  # of the connection that only reads the engine's version
_MAX_ERROR_LENGTH = 200  # characters of an answer that an error quotes
_CONNECTION_LOST = "the connection was lost"
_ONE_SHOT_API_VERSION = (1, 41)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate files for TLS; without any, TLS is used only for https URLs."""

    ca_cert: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True


class EngineClient:
    """Client of one engine. Each call ends after the timeout or the caller's own limit.

    Args:
        base_url: value of the option; names the engine in errors.
        timeout_seconds: seconds without a byte after which a call fails.
    """

    def __init__(self, base_url: str, timeout_seconds: float, tls: TlsFiles | None = None) -> None:
        self.source = base_url
        self._timeout = timeout_seconds
        self._tls = tls or TlsFiles()
        self._lock = threading.Lock()
        self._connection: docker.APIClient | None = None

    # Every method raises DriverUnavailableError when the engine does not
    # answer, and HostDataError when it answers with an error.

    def ping(self) -> Any:
        """Return the engine's answer to ``/_ping``, the cheapest request."""
        return self._call(lambda api: api.ping())

    def version(self) -> Any:
        return self._call(lambda api: api.version(api_version=False))

    def info(self) -> Any:
        return self._call(lambda api: api.info())

    def list_containers(self) -> Any:
        """Return summaries of all containers, running or not."""
        return self._call(lambda api: api.containers(all=True))

    def inspect_container(self, container_id: str) -> Any:
        """Return the full description of one container."""
        return self._call(lambda api: api.inspect_container(container_id))

    def get_statistics(self, container_id: str) -> Any:
        """Return the current counters of one container."""

        def read(api: docker.APIClient) -> Any:
            if _parse_version(api.api_version) < _ONE_SHOT_API_VERSION:
                return api.stats(container_id, stream=False)
            return api.stats(container_id, stream=False, one_shot=True)

        return self._call(read)

    def get_disk_usage(self) -> Any:
        """Return the disk usage of images.

        Before API 1.42 engines also measure containers and volumes, file by file.
        """

        def read(api: docker.APIClient) -> Any:
            url = f"{api.base_url}/v{api.api_version}/system/df"
            response = api.get(url, params={"type": "image"}, timeout=self._timeout)
            return self._check_response(response).json()

        return self._call(read)

    def open_events(
        self, since: str | None, filters: dict[str, list[str]], idle_seconds: float
    ) -> EventStream:
        """Open the stream of events.

        Args:
            since: time of the first event, by the engine's clock in seconds; None = now.
            idle_seconds: seconds without an event after which the stream ends.
        """

        def listen(api: docker.APIClient) -> EventStream:
            parameters = {"filters": docker.utils.convert_filters(filters)}
            if since is not None:
                parameters["since"] = since
            response = api.get(
                f"{api.base_url}/v{api.api_version}/events",
                params=parameters,
                stream=True,
                timeout=(self._timeout, idle_seconds),
            )
            return EventStream(self._check_response(response))

        return self._call(listen)

    def copy(self) -> "EngineClient":
        """Return another client of the same engine, with a separate connection."""
        return EngineClient(self.source, self._timeout, self._tls)

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        self._discard(self._connection)

    def _discard(self, connection: docker.APIClient | None) -> None:
        """Close a connection; one by which another thread has replaced it remains open."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        if connection is not None:
            connection.close()

    def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        """Run a call; repeat it once if the engine had closed an open connection."""
        was_connected = self._connection is not None
        try:
            return self._call_once(call)
        except DriverUnavailableError as error:
            if not was_connected or error.reason != _CONNECTION_LOST:
                raise
        return self._call_once(call)

    def _call_once(self, call: Callable[[docker.APIClient], T]) -> T:
        connection = self._connection
        try:
            connection = connection or self._connect()
            return call(connection)
        except docker.errors.NotFound as error:
            raise NotFoundError(f"{self.source}: {error.explanation}") from error
        except docker.errors.APIError as error:
            self._discard(connection)  # the engine may have been upgraded in the meantime
            status = error.response.status_code if error.response is not None else "an error"
            raise HostDataError(
                self.source, f"answered {status}: {error.explanation or error}"
            ) from error
        except requests.JSONDecodeError as error:
            raise HostDataError(self.source, "answered with invalid JSON") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            self._discard(connection)
            raise DriverUnavailableError(self.source, self._describe(error)) from error
        except (ValueError, RecursionError) as error:
            raise HostDataError(self.source, "answered with invalid JSON") from error

    def _connect(self) -> docker.APIClient:
        """Connect and negotiate the API version, unless another thread has done so meanwhile.

        The lock is not held during these requests.
        """
        with contextlib.closing(self._make_connection(_NEGOTIATION_API_VERSION)) as probe:
            version = self._read_api_version(probe)
        if not isinstance(version, str) or not _parse_version(version):
            raise HostDataError(self.source, "does not report its API version")
        if _parse_version(version) < MIN_API_VERSION:
            required = ".".join(map(str, MIN_API_VERSION))
            raise HostDataError(
                self.source, f"API version {version} is too old: expected {required} or later"
            )
        made = self._make_connection(version)
        with self._lock:
            connection = self._connection = self._connection or made
        if connection is not made:
            made.close()
        return connection

    def _read_api_version(self, probe: docker.APIClient) -> Any:
        """Return the engine's API version: from its answer to ``/_ping``, else ``/version``.

        Podman's service (seen with 4.3) starts other programs for ``/version``,
        and finishes these calls even if nobody waits for them.
        """
        ping = probe.get(f"{probe.base_url}/_ping", timeout=self._timeout)
        if "Api-Version" in ping.headers:
            return ping.headers["Api-Version"]
        try:
            answer = probe.version(api_version=False)
        except docker.errors.NotFound as error:
            text = f"answered 404: {error.explanation}"
            raise HostDataError(self.source, text[:_MAX_ERROR_LENGTH]) from error
        return answer.get("ApiVersion") if isinstance(answer, dict) else None

    def _check_response(self, response: requests.Response) -> requests.Response:
        """Return the response if its status is 200."""
        if response.status_code != 200:
            text = response.text
            response.close()
            raise HostDataError(
                self.source, f"answered {response.status_code}: {text[:_MAX_ERROR_LENGTH]}"
            )
        return response

    def _make_connection(self, version: str) -> docker.APIClient:
        """Make a connection that ignores proxies and authorities from the environment."""
        try:
            connection = docker.APIClient(
                base_url=self.source, version=version, timeout=self._timeout, tls=self._tls_config()
            )
        except (AttributeError, TypeError) as error:  # the library always reads that file
            raise HostDataError(
                self.source, "the Docker configuration file of the agent's user is invalid"
            ) from error
        connection.trust_env = False
        connection.hooks["response"].append(self._limit_answer)
        return connection

    def _limit_answer(self, response: requests.Response, **options: Any) -> None:
        """Limit an answer before it is read, unless it is the stream of events."""
        if not options.get("stream") or response.status_code != 200:
            response.raw = _LimitedBody(response.raw, self.source)

    def _tls_config(self) -> Any:
        files = self._tls
        if not (files.ca_cert or files.cert or self.source.startswith("https:")):
            return None
        pair = (files.cert, files.key) if files.cert else None
        return docker.tls.TLSConfig(client_cert=pair, ca_cert=files.ca_cert, verify=files.verify)

    def _describe(self, error: BaseException) -> str:
        """Return why the engine did not answer; the same cause always has the same text."""
        causes = list(list_causes(error))
        if any(map(_is_timeout, causes)):
            return f"no answer within {self._timeout:g} s"
        for cause in causes:
            is_library_error = isinstance(cause, requests.RequestException)
            if isinstance(cause, OSError) and cause.strerror and not is_library_error:
                return cause.strerror
            if isinstance(cause, docker.errors.TLSParameterError):
                return " ".join(str(cause).split())
        return _CONNECTION_LOST


def _is_timeout(error: BaseException) -> bool:
    """Return whether a call timed out; urllib3's error of a refused connection is a timeout too."""
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return False
    return isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError))


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
