"""Admit the calls of agents before a byte of their bodies is read: ASGI in front of the threads.

The credential in a request's header decides how much of it is read, and how many of its kind
are carried out at the same time. Whoever has none is a stranger: it may join by a small body,
in threads of its own. A host has turns of its own, so that it can only delay itself, and its
heartbeats wait for nothing but heartbeats.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from nodetracker.conductor.application import (
    HEARTBEAT,
    IS_LARGE,
    JOIN,
    ConductorApplication,
    find_status,
)
from nodetracker.conductor.bodies import LARGE_BYTES
from nodetracker.model.errors import (
    AuthenticationError,
    NodetrackerError,
    NotFoundError,
    RequestError,
    RpcUnavailableError,
)
from nodetracker.model.serializer import encode_error
from nodetracker.web.admission import (
    LANE,
    MAX_BYTES,
    STRANGER_BYTES,
    Application,
    Places,
    Receive,
    Send,
    refuse,
)

STRANGERS_PER_ADDRESS = 4
STRANGERS = 32

TURNS = 3
URGENT_TURNS = 1
"""Requests of a host that are carried out at the same time, those of heartbeats apart."""
MAX_WAITING = 16
"""Requests of a host that wait for a turn, their bodies unread."""

STRANGER_LANE, URGENT_LANE = "strangers", "heartbeats"
LANES = {STRANGER_LANE: 2, URGENT_LANE: 8}
"""Threads that only these requests have."""

_DISCARDED_BYTES = 1024 * 1024
_DISCARD_SECONDS = 2.0


@dataclass(slots=True)
class _Turns:
    """Of one host."""

    free: asyncio.Semaphore
    count: int = 0


class Gate:
    """An ASGI application in front of a reader of bodies, which is in front of a conductor's own.

    Args:
        reader: reads bodies, and gives them to the conductor's application.
    """

    def __init__(self, reader: Application, conductor: ConductorApplication) -> None:
        self._reader = reader
        self._conductor = conductor
        self._strangers = Places(STRANGERS_PER_ADDRESS, STRANGERS)
        self._turns: dict[tuple[str, bool], _Turns] = {}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path, address = scope["path"], (scope.get("client") or ("",))[0]
        headers = dict(scope["headers"])
        host: str | None = None
        try:
            if path != JOIN and b"authorization" in headers:
                host = await self._conductor.known.find(headers[b"authorization"])
            if host is not None:
                await self._admit_host(host, scope, headers, receive, send)
            else:
                await self._admit_stranger(address, scope, headers, receive, send)
        except NodetrackerError as error:
            refusal = error
        else:
            return
        self._conductor.log_refusal(host, address, path, refusal)
        await _refuse(refusal, receive, send)

    async def _admit_stranger(
        self, address: str, scope: Any, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if not self._strangers.take(address):
            raise RpcUnavailableError("too many calls without a known credential; try again later")
        try:
            if scope["path"] != JOIN:
                # Within its place, as what it sends is discarded for a while.
                refusal = _find_refusal(scope, headers)
                self._conductor.log_refusal(None, address, scope["path"], refusal)
                await _refuse(refusal, receive, send, _DISCARDED_BYTES)
                return
            if b"content-encoding" in headers or not 0 <= _find_length(headers) <= STRANGER_BYTES:
                raise RequestError(
                    "body", f"expected at most {STRANGER_BYTES} bytes, with their number, unpacked"
                )
            admitted = {**scope, MAX_BYTES: STRANGER_BYTES, LANE: STRANGER_LANE}
            await self._reader(admitted, receive, send)
        finally:
            self._strangers.give_back(address)

    async def _admit_host(
        self, host: str, scope: Any, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        is_urgent = scope["path"] == HEARTBEAT
        key = host, is_urgent
        count = URGENT_TURNS if is_urgent else TURNS
        turns = self._turns.setdefault(key, _Turns(asyncio.Semaphore(count)))
        if turns.count >= count + MAX_WAITING:
            raise RpcUnavailableError(f"too many calls of host {host} wait; try again later")
        turns.count += 1
        try:
            async with turns.free:
                if is_urgent:
                    urgent = {**scope, MAX_BYTES: LARGE_BYTES, LANE: URGENT_LANE}
                    await self._reader(urgent, receive, send)
                elif 0 <= _find_length(headers) <= LARGE_BYTES:
                    await self._reader(scope, receive, send)
                else:
                    await self._admit_large(host, scope, receive, send)
        finally:
            turns.count -= 1
            if not turns.count:
                del self._turns[key]

    async def _admit_large(self, host: str, scope: Any, receive: Receive, send: Send) -> None:
        with self._conductor.large_body(host):
            await self._reader({**scope, IS_LARGE: True}, receive, send)


async def _refuse(
    error: NodetrackerError, receive: Receive, send: Send, discarded_bytes: int = 0
) -> None:
    """Answer, and close the connection; most clients read no answer while they send."""
    body = json.dumps({"error": encode_error(error)}).encode()
    headers = [("Content-Type", "application/json")]
    status = find_status(error)
    await refuse(receive, send, status, headers, body, discarded_bytes, _DISCARD_SECONDS)


def _find_refusal(scope: Any, headers: dict[bytes, bytes]) -> NodetrackerError:
    if scope["method"] != "POST":
        return NotFoundError("POST /store/METHOD is served here, to agents")
    if b"authorization" in headers:
        return AuthenticationError("unknown credential")
    return AuthenticationError("no credential; join by a token first")


def _find_length(headers: dict[bytes, bytes]) -> int:
    """Return how many bytes a body has, -1 where its header does not say so."""
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        return -1
    return int(length)
