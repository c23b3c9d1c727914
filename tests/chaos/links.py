"""TCP connections between any two programs of a run, and what a network does to them.

All links are of one process, ``python -m tests.chaos.links``, so that they cost the tests no
time. `Links` is the tests' side of it: each line of JSON that it writes sets the state of a link.
"""

import asyncio
import contextlib
import enum
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.functional.servers.process import find_free_port


class State(enum.StrEnum):
    """What happens to the bytes of a link.

    As TCP sends again what was lost, bytes that are held are delivered once the link is open.
    """

    OPEN = "open"
    CUT = "cut"  # connections are reset, and refused
    HELD = "held"  # nothing arrives on either side
    DEAF = "deaf"  # requests arrive, answers do not
    HALF = "half"  # one side is reset, the other one does not notice
    SLOW = "slow"  # everything takes longer
    LOSSY = "lossy"  # some of it much longer, and connections are reset now and then


SLOW_SECONDS = 0.15
LOST_SHARE, LOST_SECONDS, RESET_SHARE = 0.15, (0.2, 3.0), 0.01


class Links:
    """The process of all links, and where each is entered."""

    def __init__(self, log: Path) -> None:
        self.ports: dict[str, int] = {}
        self._lock = threading.Lock()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.links"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def add(self, name: str, port: int) -> int:
        """Return the port of a new link to a port of this machine."""
        self.ports[name] = find_free_port()
        self._tell({"link": name, "port": self.ports[name], "to": port})
        return self.ports[name]

    def set(self, names: Iterable[str], state: State) -> None:
        """Set the state of links."""
        for name in names:
            self._tell({"link": name, "state": state})

    def close(self) -> None:
        """End all links."""
        self._process.kill()
        self._process.communicate()

    def _tell(self, line: dict[str, object]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:  # two faults at a time are set by two threads
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
            assert self._process.stdout.readline() == "done\n"


class _Link:
    """One link: accepts connections and forwards them, as its state is."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._state = State.OPEN
        self._changed = asyncio.Event()
        self._clients: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()

    def set(self, state: State) -> None:
        was_half, self._state = self._state is State.HALF, state
        self._changed.set()
        self._changed = asyncio.Event()
        if state in (State.CUT, State.HALF):
            _reset(self._clients)
        if state is State.CUT or was_half:
            _reset(self._servers)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state in (State.CUT, State.HALF):
            writer.transport.abort()
            return
        self._clients.add(writer)
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            self._clients.discard(writer)
            return
        self._servers.add(to_server)
        await asyncio.gather(
            self._forward(reader, to_server, is_answer=False),
            self._forward(server, writer, is_answer=True),
        )
        self._clients.discard(writer)
        self._servers.discard(to_server)

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self._wait(target, is_answer)
                target.write(data)
                await target.drain()
        while self._state is State.HALF:
            await self._changed.wait()
        await self._wait(target, is_answer)
        target.close()

    async def _wait(self, target: asyncio.StreamWriter, is_answer: bool) -> None:
        """Wait as long as the network takes."""
        if self._state is State.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        if self._state is State.LOSSY:
            draw = random.random()
            if draw < RESET_SHARE:
                target.transport.abort()
            elif draw < LOST_SHARE:
                await asyncio.sleep(random.uniform(*LOST_SECONDS))
        while self._state is State.HELD or (self._state is State.DEAF and is_answer):
            await self._changed.wait()


def _reset(writers: set[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()


async def main() -> None:
    """Carry out the lines of the input until it ends."""
    links: dict[str, _Link] = {}
    servers = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if "to" in order:
            link = links[order["link"]] = _Link(order["to"])
            servers.append(await asyncio.start_server(link.accept, "127.0.0.1", order["port"]))
        else:
            links[order["link"]].set(State(order["state"]))
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
