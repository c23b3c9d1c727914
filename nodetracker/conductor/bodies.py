"""Read the bodies of calls: JSON, counted before it is parsed.

While Python parses JSON no other thread runs. What would take long is parsed by a child
process, one at a time, which hands it over in parts: ``python -m nodetracker.conductor.bodies``.
"""

import json
import math
import re
import resource
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from nodetracker.accounting.validator import MAX_VALUES, count_values
from nodetracker.conductor.interface import PLAIN_BYTES
from nodetracker.model.errors import RequestError, RpcUnavailableError
from nodetracker.process.child import process_limit_explained

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of a body once it is decompressed; from agents of the release before."""

LARGE_BYTES = 1024 * 1024
"""Of a host's larger bodies, one at a time is carried out; heartbeats are smaller."""

_CHILD_VALUES = 6_000_000
_CHILD_MEMORY_BYTES = 1280 * 1024 * 1024
_CHILD_SECONDS = 20
_MAX_WAITING = 4
_PART_BYTES = 512 * 1024
_MAX_KEYS = 20_000
"""Of one object; that many more take long, where small ones do not."""

_INVALID = "expected a JSON object"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BodyParser:
    """Parses bodies; see `ConductorApplication`.

    Args:
        serves_older: returns whether agents of the release before may call, which send larger
            bodies; it may query the database.
    """

    def __init__(self, serves_older: Callable[[], bool]) -> None:
        self._serves_older = serves_older
        self._child = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING)

    def parse(
        self,
        data: bytes,
        is_gzip: bool,
        max_bytes: int,
        on_large: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Return the JSON object of a body.

        Args:
            max_bytes: once it is decompressed.
            on_large: called before one of more than `LARGE_BYTES` is parsed.

        Raises:
            RequestError: it is none, or too large.
            RpcUnavailableError: too many large ones wait to be parsed.
        """
        limit = min(max_bytes, PLAIN_BYTES)
        plain = _unpack(data, limit) if is_gzip else data
        if len(plain) > LARGE_BYTES:
            on_large()
        if len(plain) <= limit:
            if count_values(plain, "body") <= MAX_VALUES:
                return parse(plain)
        elif max_bytes <= PLAIN_BYTES or not self._serves_older():
            raise RequestError("body", f"larger than {limit} bytes")
        del plain
        return self._parse_in_child(data, is_gzip)

    def _parse_in_child(self, data: bytes, is_gzip: bool) -> dict[str, Any]:
        if not self._waiting.acquire(blocking=False):
            raise RpcUnavailableError("too many large bodies wait to be parsed; try again later")
        try:
            with self._child:
                return _join(_run_child(data, is_gzip))
        finally:
            self._waiting.release()


def parse(plain: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RequestError: it is none, or has a number or a text that databases refuse.
    """
    try:
        body = json.loads(plain.decode(), parse_constant=_refuse_constant, parse_float=_read_float)
        if _SURROGATE.search(plain):
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise RequestError("body", _INVALID) from None
    if not isinstance(body, dict):
        raise RequestError("body", _INVALID)
    return body


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, which answers with the rows of all hosts could not have."""
    raise ValueError(name)


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _unpack(data: bytes, max_bytes: int) -> bytes:
    """Return what is packed, and one byte more than the most if it has more."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, max_bytes + 1)
    except zlib.error:
        raise RequestError("body", _INVALID) from None


def _run_child(data: bytes, is_gzip: bool) -> list[bytes]:
    """Return the lines that a child writes.

    Raises:
        RequestError: it cannot parse the body, or not with the memory and time that it has.
    """
    command = [sys.executable, "-P", "-m", __name__, *(["gzip"] if is_gzip else [])]
    try:
        with process_limit_explained():
            done = subprocess.run(  # noqa: S603
                command, input=data, capture_output=True, timeout=2 * _CHILD_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        raise RequestError("body", "too large to be parsed") from None
    if done.returncode != 0:
        problem = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RequestError("body", problem if done.returncode == 1 else "too large to be parsed")
    return done.stdout.splitlines()


def _join(lines: list[bytes]) -> dict[str, Any]:
    """Return the body whose parts a child has written; each is parsed by itself."""
    body: dict[str, Any] = json.loads(lines[0])
    for line in lines[1:]:
        name, items = json.loads(line)
        body["arguments"][name] += items
    return body


def split(body: dict[str, Any]) -> Iterator[Any]:
    """Yield a body without the items of its arguments, then these with the argument's name.

    Raises:
        RequestError: a part is too large to be parsed by the receiver.
    """
    arguments = body.get("arguments")
    lists: dict[str, list[Any]] = {}
    if isinstance(arguments, dict):
        lists = {name: items for name, items in arguments.items() if isinstance(items, list)}
        body = body | {"arguments": arguments | {name: [] for name in lists}}
    yield _render(body)
    for name, items in lists.items():
        part: list[bytes] = []
        size = 0
        for item in items:
            rendered = _render(item)
            part.append(rendered)
            size += len(rendered)
            if size > _PART_BYTES:
                yield b"[%s,[%s]]" % (_render(name), b",".join(part))
                part, size = [], 0
        yield b"[%s,[%s]]" % (_render(name), b",".join(part))


def _render(item: Any) -> bytes:
    rendered = json.dumps(item, separators=(",", ":")).encode()
    if len(rendered) > PLAIN_BYTES:
        raise RequestError("body", f"a part of it is larger than {PLAIN_BYTES} bytes")
    pending = [item]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            if len(found) > _MAX_KEYS:
                raise RequestError("body", f"an object has more than {_MAX_KEYS} keys")
            pending += found.values()
        elif isinstance(found, list):
            pending += found
    return rendered


def main() -> int:
    """Parse a body from the standard input; write its parts, or why it cannot be parsed."""
    resource.setrlimit(resource.RLIMIT_AS, (_CHILD_MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (_CHILD_SECONDS,) * 2)
    data = sys.stdin.buffer.read()
    try:
        if "gzip" in sys.argv:
            data = _unpack(data, MAX_BODY_BYTES)
        if len(data) > MAX_BODY_BYTES:
            raise RequestError("body", f"larger than {MAX_BODY_BYTES} bytes")
        if count_values(data, "body", _CHILD_VALUES) > _CHILD_VALUES:
            raise RequestError("body", f"more than {_CHILD_VALUES} values")
        for line in split(parse(data)):
            sys.stdout.buffer.write(line + b"\n")
    except RequestError as error:
        sys.stderr.write(error.reason)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
