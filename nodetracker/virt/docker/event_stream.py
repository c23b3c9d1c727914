"""Read the stream of a container engine's events until it ends or is idle."""

import contextlib
from collections.abc import Iterator
from email.utils import mktime_tz, parsedate_tz

import requests
import urllib3
from docker.types import CancellableStream


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
        """Yield pieces until the stream ends."""
        try:
            yield from self._response.iter_content(chunk_size=None)
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
