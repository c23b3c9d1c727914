"""Asks a container engine by Docker's API: connects late, bounds each call, connects anew."""

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

from nodetracker.errors import DriverUnavailableError, HostDataError, NotFoundError

MIN_API_VERSION = (1, 40)
_ANY_VERSION = "1.40"  # of a connection that asks for nothing but the engine's own
_LONGEST_ANSWER = 200  # characters of one that is told
_LOST = "the connection was lost"
_ONE_SHOT_API_VERSION = (1, 41)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates by which client and engine know each other; None of all is no TLS."""

    ca_cert: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    @property
    def is_wanted(self) -> bool:
        """Whether any of them is given."""
        return bool(self.ca_cert or self.cert)


class EventStream:
    """The engine's events as they come, in pieces of JSON text.

    Iterating ends when the engine ends it, and when nothing came for a while;
    `was_quiet` tells which.

    Attributes:
        opened_at: when it began, by the engine's clock in whole seconds since
            1970 rounded down; None when the engine does not tell.
    """

    def __init__(self, response: requests.Response) -> None:
        self._response = response
        self._cancellable = CancellableStream(iter(()), response)
        self.was_quiet = False
        date = parsedate_tz(response.headers.get("Date") or "")
        self.opened_at = None if date is None else int(mktime_tz(date))

    def __iter__(self) -> Iterator[bytes]:
        """Give pieces until the end."""
        try:
            yield from self._response.iter_content(chunk_size=None)
        except requests.exceptions.ConnectionError as error:
            cause = error.args[0] if error.args else None
            self.was_quiet = isinstance(cause, urllib3.exceptions.ReadTimeoutError)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
            pass  # the daemon is gone; the caller connects again
        except AttributeError:
            pass  # closed from another thread while a piece was read
        finally:
            self._response.close()

    def close(self) -> None:
        """End it, from any thread; a waiting reader returns at once."""
        with contextlib.suppress(OSError, AttributeError):
            self._cancellable.close()


class EngineClient:
    """One engine. Each call ends by the timeout or by the caller's own bound.

    Args:
        base_url: as the option has it; names the engine in errors.
        timeout_seconds: without a byte, after which a call fails.
    """

    def __init__(self, base_url: str, timeout_seconds: float, tls: TlsFiles | None = None) -> None:
        self.source = base_url
        self.request_count = 0
        self._timeout = timeout_seconds
        self._tls = tls or TlsFiles()
        self._lock = threading.Lock()
        self._connection: docker.APIClient | None = None

    # Every method raises DriverUnavailableError when the engine does not
    # answer, and HostDataError when it answers that it cannot.

    def ping(self) -> Any:
        """Return whatever the engine answers to the least that can be asked."""
        return self._ask(lambda api: api.ping())

    def version(self) -> Any:
        """Return what the engine says of its version."""
        return self._ask(lambda api: api.version(api_version=False))

    def info(self) -> Any:
        """Return what the engine says of itself."""
        return self._ask(lambda api: api.info())

    def list_containers(self) -> Any:
        """Return all containers in short, running or not."""
        return self._ask(lambda api: api.containers(all=True))

    def inspect_container(self, container_id: str) -> Any:
        """Return all of one container.

        Raises:
            NotFoundError: it is gone.
        """
        return self._ask(lambda api: api.inspect_container(container_id))

    def read_statistics(self, container_id: str) -> Any:
        """Return the counters of one container as they are.

        Raises:
            NotFoundError: it is gone.
        """

        def read(api: docker.APIClient) -> Any:
            if _parse_version(api.api_version) < _ONE_SHOT_API_VERSION:
                return api.stats(container_id, stream=False)
            return api.stats(container_id, stream=False, one_shot=True)

        return self._ask(read)

    def read_disk_use(self) -> Any:
        """Return what images take.

        Engines before API 1.42 measure containers and volumes too, file by file.
        """

        def read(api: docker.APIClient) -> Any:
            url = f"{api.base_url}/v{api.api_version}/system/df"
            response = api.get(url, params={"type": "image"}, timeout=self._timeout)
            return self._checked(response).json()

        return self._ask(read)

    def open_events(
        self, since: str | None, filters: dict[str, list[str]], quiet_seconds: float
    ) -> EventStream:
        """Begin to listen.

        Args:
            since: from when on, by the engine's clock in seconds; None = now.
            quiet_seconds: without an event, after which the stream ends.
        """

        def listen(api: docker.APIClient) -> EventStream:
            parameters = {"filters": docker.utils.convert_filters(filters)}
            if since is not None:
                parameters["since"] = since
            response = api.get(
                f"{api.base_url}/v{api.api_version}/events",
                params=parameters,
                stream=True,
                timeout=(self._timeout, quiet_seconds),
            )
            return EventStream(self._checked(response))

        return self._ask(listen)

    def copy(self) -> "EngineClient":
        """Return a client of the same engine with a connection of its own."""
        return EngineClient(self.source, self._timeout, self._tls)

    def close(self) -> None:
        """Let go of the connection; a later call makes a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, question: Callable[[docker.APIClient], T]) -> T:
        """Ask, and once more if the engine has closed the connection that there was."""
        was_connected = self._connection is not None
        try:
            return self._ask_once(question)
        except DriverUnavailableError as error:
            if not was_connected or error.reason != _LOST:
                raise
        return self._ask_once(question)

    def _ask_once(self, question: Callable[[docker.APIClient], T]) -> T:
        try:
            connection = self._connection or self._connect()
            self.request_count += 1
            return question(connection)
        except docker.errors.NotFound as error:
            raise NotFoundError(f"{self.source}: {error.explanation}") from error
        except docker.errors.APIError as error:
            self.close()  # the engine may be another version's by now
            status = error.response.status_code if error.response is not None else "an error"
            raise HostDataError(
                self.source, f"answered {status}: {error.explanation or error}"
            ) from error
        except requests.JSONDecodeError as error:
            raise HostDataError(self.source, "answered what is no JSON") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            self.close()
            raise DriverUnavailableError(self.source, self._describe(error)) from error
        except ValueError as error:
            raise HostDataError(self.source, "answered what is no JSON") from error

    def _connect(self) -> docker.APIClient:
        """Connect and agree on a version, which are requests; no lock is held meanwhile."""
        self.request_count += 1
        with contextlib.closing(self._make_connection(_ANY_VERSION)) as first:
            try:
                answer = first.version(api_version=False)
            except docker.errors.NotFound as error:
                text = f"answered 404: {error.explanation}"
                raise HostDataError(self.source, text[:_LONGEST_ANSWER]) from error
        version = answer.get("ApiVersion") if isinstance(answer, dict) else None
        if not isinstance(version, str) or not _parse_version(version):
            raise HostDataError(self.source, "does not tell its API's version")
        if _parse_version(version) < MIN_API_VERSION:
            least = ".".join(map(str, MIN_API_VERSION))
            raise HostDataError(self.source, f"speaks API {version}, and {least} is the least")
        connection = self._make_connection(version)
        with self._lock:
            known, self._connection = self._connection, connection
        if known is not None:
            known.close()
        return connection

    def _checked(self, response: requests.Response) -> requests.Response:
        """Return an answer that is one, and not an error."""
        if response.status_code != 200:
            text = response.text
            response.close()
            raise HostDataError(
                self.source, f"answered {response.status_code}: {text[:_LONGEST_ANSWER]}"
            )
        return response

    def _make_connection(self, version: str) -> docker.APIClient:
        """Make a connection that takes no proxy and no authority from the environment."""
        try:
            connection = docker.APIClient(
                base_url=self.source, version=version, timeout=self._timeout, tls=self._tls_config()
            )
        except (AttributeError, TypeError) as error:  # the library reads that file in any case
            raise HostDataError(
                self.source, "the Docker configuration file of the agent's user cannot be used"
            ) from error
        connection.trust_env = False
        return connection

    def _tls_config(self) -> Any:
        files = self._tls
        if not files.is_wanted and not self.source.startswith("https:"):
            return None
        pair = (files.cert, files.key) if files.cert else None
        return docker.tls.TLSConfig(client_cert=pair, ca_cert=files.ca_cert, verify=files.verify)

    def _describe(self, error: BaseException) -> str:
        """Say why there was no answer, in words that stay the same while it lasts."""
        seen: BaseException | None = error
        while seen is not None:
            if _is_timeout(seen):
                return f"no answer within {self._timeout:g} s"
            seen = seen.__cause__ or seen.__context__
        seen = error
        while seen is not None:
            if (
                isinstance(seen, OSError)
                and not isinstance(seen, requests.RequestException)
                and seen.strerror
            ):
                return seen.strerror
            if isinstance(seen, docker.errors.TLSParameterError):
                return " ".join(str(seen).split())
            seen = seen.__cause__ or seen.__context__
        return _LOST


def _is_timeout(error: BaseException) -> bool:
    """Tell whether nothing came in time; a refused connection calls itself a timeout, too."""
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return False
    return isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError))


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
